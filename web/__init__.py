"""HTTP doors: each a thin way in to what a command does too."""
