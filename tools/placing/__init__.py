"""`perfc place`: where tables lie."""
