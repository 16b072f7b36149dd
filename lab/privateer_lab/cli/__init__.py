"""The command line: a module for each group of commands, or a package of them."""
