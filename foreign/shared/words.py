"""What the agents that do what their prompts say answer, whatever protocol they speak."""

# A PNG of one pixel.
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
# Seconds between two pieces of what `count` says.
PAUSE = 0.02
# What `count:5` says, in pieces.
COUNTED = "0 1 2 3 4 "
# Why `fail` fails.
FAILURE = "nobody can answer that"
