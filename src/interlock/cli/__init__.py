"""Where people are: the command line. Every command is a module; what it needs is imported when it runs."""
