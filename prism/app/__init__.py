"""The playground: hide parts of a picture and watch the network think."""
