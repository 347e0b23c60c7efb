"""What Python sees of the program: functions that are its commands, and results that show."""
