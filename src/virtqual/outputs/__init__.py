"""One pure parser a program: text in, typed values out, an error where the text is not whole."""
