"""gfast: judge kernel candidates, measure them honestly, and compile the fastest from recorded evidence."""
