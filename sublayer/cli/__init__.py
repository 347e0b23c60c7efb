"""The command line: a module a command, which parses, calls a public function and prints."""
