"""The answers of the agents that do what their prompts say, in every protocol."""

# A PNG of one pixel.
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
# Seconds between two pieces of the answer to `count`.
PAUSE = 0.02
# The answer to `count:5`, in pieces.
COUNTED = "0 1 2 3 4 "
# The reason of the failure of `fail`.
FAILURE = "nobody can answer that"
