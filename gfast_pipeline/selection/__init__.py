"""Who holds the title, who the cells, who is a parent of what comes next: pure functions of the log, in one scope."""
