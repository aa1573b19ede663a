"""Objects, their boxes and masks: RetinaNet and Mask R-CNN on any backbone."""
