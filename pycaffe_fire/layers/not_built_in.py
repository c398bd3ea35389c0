"""Layer types of other Caffes that are known here but not built in, and the way out of each."""

from __future__ import annotations

NOT_BUILT_IN = {
    "DetectNetTransformation": (
        "prepare crops and coverage maps beforehand and read them with HDF5Data, use DetectNet's "
        "Python layers, or train SSD"
    ),
    "EvalDetection": "use DetectionEvaluate, or a Python layer",
    "VideoData": "make images of the video's frames, and read those",
}
