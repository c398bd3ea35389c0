"""Filters and feature maps as one image, tiled as in Caffe's first example."""

import caffe
import numpy as np
from PIL import Image

caffe.set_mode_cpu()

with open("deploy.prototxt", "w") as f:
    f.write(
        """
layer { name: "data" type: "Input" top: "data"
  input_param { shape { dim: 1 dim: 3 dim: 30 dim: 30 } } }
layer { name: "conv1" type: "Convolution" bottom: "data" top: "conv1"
  convolution_param { num_output: 14 kernel_size: 7 weight_filler { type: "gaussian" std: 0.1 } } }
layer { name: "relu1" type: "ReLU" bottom: "conv1" top: "conv1" }
layer { name: "pool1" type: "Pooling" bottom: "conv1" top: "pool1"
  pooling_param { kernel_size: 2 stride: 2 } }
"""
    )


def vis_square(data, name):
    """Tile an array of shape (n, height, width[, 3]) about sqrt(n) by sqrt(n)."""
    data = (data - data.min()) / (data.max() - data.min())
    n = int(np.ceil(np.sqrt(data.shape[0])))
    padding = ((0, n**2 - data.shape[0]), (0, 1), (0, 1)) + ((0, 0),) * (data.ndim - 3)
    data = np.pad(data, padding, mode="constant", constant_values=1)
    data = data.reshape((n, n) + data.shape[1:]).transpose(
        (0, 2, 1, 3) + tuple(range(4, data.ndim + 1))
    )
    data = data.reshape((n * data.shape[1], n * data.shape[3]) + data.shape[4:])
    Image.fromarray((255 * data).astype(np.uint8)).save(name)
    return data


net = caffe.Net("deploy.prototxt", caffe.TEST)
for layer_name, blob in net.blobs.items():
    print(layer_name + "\t" + str(blob.data.shape))
for layer_name, param in net.params.items():
    print(layer_name + "\t" + str(param[0].data.shape), str(param[1].data.shape))

filters = net.params["conv1"][0].data
tiled = vis_square(filters.transpose(0, 2, 3, 1), "filters.png")
assert tiled.shape == (4 * 8, 4 * 8, 3)
lowest, highest = filters.min(), filters.max()
np.testing.assert_allclose(
    tiled[8:15, 16:23, 1], (filters[6, 1] - lowest) / (highest - lowest), rtol=1e-5
)

net.blobs["data"].data[...] = np.random.RandomState(0).rand(1, 3, 30, 30)
net.forward()
feat = net.blobs["conv1"].data[0, :36]
assert vis_square(feat, "maps.png").shape == (4 * 25, 4 * 25)
assert feat.min() == 0 and net.blobs["pool1"].data.max() == feat.max()
assert Image.open("filters.png").size == (32, 32)
print("images drawn")
