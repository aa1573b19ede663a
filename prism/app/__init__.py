"""The playground: hide parts of an image and watch how the network copes."""
