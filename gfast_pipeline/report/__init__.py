"""What people see: tables for a terminal and the same as plain values, from stored records. Decides nothing."""
