"""Tables of data: one reader of files and data frames, whose rule is that a table is text until a quantity is asked."""
