"""What each program prints, reads and takes: one file a program, pure functions, no file is opened."""
