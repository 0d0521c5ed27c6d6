"""Groups of pods placed together on one placement (KEP-5732): generated, checked and scored through plugins. Pure."""
