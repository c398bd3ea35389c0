"""Net surgery: set filters by hand, look at what they do, save the net and load it elsewhere."""

import caffe
import numpy as np

caffe.set_mode_cpu()

with open("conv.prototxt", "w") as f:
    f.write(
        """
name: "convolution"
input: "data"
input_shape { dim: 1 dim: 1 dim: 32 dim: 32 }
layer {
  name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param {
    num_output: 3 kernel_size: 5 stride: 1
    weight_filler { type: "gaussian" std: 0.01 }
    bias_filler { type: "constant" value: 0 }
  }
}
"""
    )

net = caffe.Net("conv.prototxt", caffe.TEST)
print("blobs {}\nparams {}".format(list(net.blobs.keys()), list(net.params.keys())))

im = np.zeros((32, 32), np.float32)
im[:, 16:] = 1.0  # one upright edge
im_input = im[np.newaxis, np.newaxis, :, :]
net.blobs["data"].reshape(*im_input.shape)
net.blobs["data"].data[...] = im_input

# A Gaussian blur, Sobel's edge detector and its transpose.
ksize = net.params["conv"][0].data.shape[2:]
y, x = np.mgrid[-ksize[0] // 2 + 1 : ksize[0] // 2 + 1, -ksize[1] // 2 + 1 : ksize[1] // 2 + 1]
g = np.exp(-((x**2 + y**2) / (2 * 1.5**2)))
gaussian = g / g.sum()
net.params["conv"][0].data[0] = gaussian
net.params["conv"][0].data[1:] = 0.0
net.params["conv"][0].data[1, 0, 1:-1, 1:-1] = np.array(([-1, 0, 1], [-2, 0, 2], [-1, 0, 1]))
net.params["conv"][0].data[2, 0, 1:-1, 1:-1] = net.params["conv"][0].data[1, 0, 1:-1, 1:-1].T
net.forward()

out = net.blobs["conv"].data
assert out.shape == (1, 3, 28, 28)
blurred, upright, level = out[0]
np.testing.assert_allclose(blurred[:, 0], 0, atol=1e-6)
np.testing.assert_allclose(blurred[:, -1], 1, rtol=1e-5)
assert (np.diff(blurred[0]) >= -1e-6).all() and 0.4 < blurred[0, 14] < 0.7
assert upright.max() == 4 and (upright[:, :12] == 0).all()
assert (level == 0).all()

# Biases shift everything.
pre = out[0].copy()
net.params["conv"][1].data[...] = [1, 0, -1]
net.forward()
np.testing.assert_allclose(net.blobs["conv"].data[0, 0], pre[0] + 1, rtol=1e-5)
np.testing.assert_allclose(net.blobs["conv"].data[0, 2], pre[2] - 1, rtol=1e-5)

# The edited net goes into a file, and from there by layer name into another net.
net.save("conv.caffemodel")
other = caffe.Net("conv.prototxt", "conv.caffemodel", caffe.TEST)
for mine, theirs in zip(net.params["conv"], other.params["conv"]):
    assert (mine.data == theirs.data).all()
print("surgery done")
