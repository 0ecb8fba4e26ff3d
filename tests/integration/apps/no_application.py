"""Has no application at all."""
