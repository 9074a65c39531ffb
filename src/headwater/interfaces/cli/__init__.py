"""The command line: answers go to stdout, messages to stderr."""
