"""What a run shows to people and programs: Caffe's log lines, and a live display on a terminal."""
