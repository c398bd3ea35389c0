"""The layer types of Caffe 1.0, its last master: nothing will join them."""

BVLC_TYPES = frozenset(
    {
        "AbsVal", "Accuracy", "ArgMax", "BNLL", "BatchNorm", "BatchReindex", "Bias", "Clip",
        "Concat", "ContrastiveLoss", "Convolution", "Crop", "Data", "Deconvolution", "Dropout",
        "DummyData", "ELU", "Eltwise", "Embed", "EuclideanLoss", "Exp", "Filter", "Flatten",
        "HDF5Data", "HDF5Output", "HingeLoss", "Im2col", "ImageData", "InfogainLoss",
        "InnerProduct", "Input", "LRN", "LSTM", "LSTMUnit", "Log", "MVN", "MemoryData",
        "MultinomialLogisticLoss", "PReLU", "Parameter", "Pooling", "Power", "Python", "RNN",
        "ReLU", "Reduction", "Reshape", "SPP", "Scale", "Sigmoid", "SigmoidCrossEntropyLoss",
        "Silence", "Slice", "Softmax", "SoftmaxWithLoss", "Split", "Swish", "TanH", "Threshold",
        "Tile", "WindowData",
    }
)  # fmt: skip
