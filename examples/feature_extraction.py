"""Feature extraction: images through a Transformer, features of an inner layer for all of them."""

import caffe
import numpy as np
from caffe import layers as L
from caffe import params as P
from PIL import Image

caffe.set_mode_cpu()
caffe.set_random_seed(1)

n = caffe.NetSpec()
n.data = L.Input(input_param=dict(shape=dict(dim=[4, 3, 20, 20])))
n.conv1 = L.Convolution(n.data, num_output=6, kernel_size=3, weight_filler=dict(type="xavier"))
n.relu1 = L.ReLU(n.conv1, in_place=True)
n.pool1 = L.Pooling(n.relu1, kernel_size=2, stride=2, pool=P.Pooling.MAX)
n.fc2 = L.InnerProduct(n.pool1, num_output=10, weight_filler=dict(type="xavier"))
n.prob = L.Softmax(n.fc2)
with open("features.prototxt", "w") as f:
    f.write(str(n.to_proto()))

rng = np.random.RandomState(0)
for i in range(7):
    Image.fromarray(rng.randint(0, 256, (24, 28, 3), dtype=np.uint8)).save("cat%d.png" % i)

caffe.Net("features.prototxt", caffe.TEST).save("features.caffemodel")
net = caffe.Net("features.prototxt", caffe.TEST, weights="features.caffemodel")

transformer = caffe.io.Transformer({"data": net.blobs["data"].data.shape})
transformer.set_transpose("data", (2, 0, 1))
transformer.set_mean("data", np.array([104, 117, 123]))
transformer.set_raw_scale("data", 255)
transformer.set_channel_swap("data", (2, 1, 0))

images = [caffe.io.load_image("cat%d.png" % i) for i in range(7)]
data = np.asarray([transformer.preprocess("data", image) for image in images])
assert data.shape == (7, 3, 20, 20)

# One at a time ...
feats = []
for image in data:
    net.blobs["data"].data[...] = image
    out = net.forward(blobs=["pool1"])
    feats.append(net.blobs["pool1"].data[0].copy())
    assert abs(out["prob"][0].sum() - 1) < 1e-5
feats = np.asarray(feats)
assert feats.shape == (7, 6, 9, 9) and feats.min() >= 0 and feats.std() > 0

# ... all at once: 7 images in batches of 4 ...
outs = net.forward_all(blobs=["pool1"], data=data)
assert outs["prob"].shape == (7, 10)
np.testing.assert_allclose(outs["pool1"], feats, rtol=1e-4, atol=1e-4)

# ... and only up to the layer that is wanted.
net.blobs["data"].reshape(7, 3, 20, 20)
net.reshape()
some = net.forward(end="pool1", data=data)
assert list(some) == ["pool1"]
np.testing.assert_allclose(some["pool1"], feats, rtol=1e-4, atol=1e-4)
print("features", feats.shape)
