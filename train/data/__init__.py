"""What a rank's steps are fed: tokens, images, and how they get to the device."""
