"""A classifier becomes fully convolutional: inner products turn into convolutions, weights stay."""

import caffe
import numpy as np

caffe.set_mode_cpu()
caffe.set_random_seed(7)

HEAD = """
layer {{ name: "data" type: "Input" top: "data"
  input_param {{ shape {{ dim: 1 dim: 3 dim: {0} dim: {0} }} }} }}
layer {{ name: "conv1" type: "Convolution" bottom: "data" top: "conv1"
  convolution_param {{ num_output: 8 kernel_size: 3 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "relu1" type: "ReLU" bottom: "conv1" top: "conv1" }}
layer {{ name: "pool1" type: "Pooling" bottom: "conv1" top: "pool1"
  pooling_param {{ pool: MAX kernel_size: 2 stride: 2 }} }}
"""
with open("full.prototxt", "w") as f:
    f.write(
        HEAD.format(14)
        + """
layer { name: "fc6" type: "InnerProduct" bottom: "pool1" top: "fc6"
  inner_product_param { num_output: 20 weight_filler { type: "xavier" } bias_filler { value: 0.1 } } }
layer { name: "relu6" type: "ReLU" bottom: "fc6" top: "fc6" }
layer { name: "fc8" type: "InnerProduct" bottom: "fc6" top: "fc8"
  inner_product_param { num_output: 5 weight_filler { type: "xavier" } bias_filler { value: -0.1 } } }
layer { name: "prob" type: "Softmax" bottom: "fc8" top: "prob" }
"""
    )
with open("conv.prototxt", "w") as f:
    f.write(
        HEAD.format(22)
        + """
layer { name: "fc6-conv" type: "Convolution" bottom: "pool1" top: "fc6-conv"
  convolution_param { num_output: 20 kernel_size: 6 } }
layer { name: "relu6" type: "ReLU" bottom: "fc6-conv" top: "fc6-conv" }
layer { name: "fc8-conv" type: "Convolution" bottom: "fc6-conv" top: "fc8-conv"
  convolution_param { num_output: 5 kernel_size: 1 } }
layer { name: "prob" type: "Softmax" bottom: "fc8-conv" top: "prob" }
"""
    )

caffe.Net("full.prototxt", caffe.TEST).save("full.caffemodel")
net = caffe.Net("full.prototxt", "full.caffemodel", caffe.TEST)
params = ["fc6", "fc8"]
fc_params = {pr: (net.params[pr][0].data, net.params[pr][1].data) for pr in params}

net_full_conv = caffe.Net("conv.prototxt", "full.caffemodel", caffe.TEST)
params_full_conv = ["fc6-conv", "fc8-conv"]
conv_params = {
    pr: (net_full_conv.params[pr][0].data, net_full_conv.params[pr][1].data)
    for pr in params_full_conv
}
for conv in params_full_conv:
    print("{} weights are {} dimensional".format(conv, conv_params[conv][0].shape))
for pr, pr_conv in zip(params, params_full_conv):
    conv_params[pr_conv][0].flat = fc_params[pr][0].flat  # flat unrolls the arrays
    conv_params[pr_conv][1][...] = fc_params[pr][1]
net_full_conv.save("full_conv.caffemodel")

im = np.random.RandomState(0).rand(1, 3, 22, 22)
out = net_full_conv.forward_all(data=im)
assert out["prob"].shape == (1, 5, 5, 5)
for y in range(5):
    for x in range(5):
        window = im[:, :, 2 * y : 2 * y + 14, 2 * x : 2 * x + 14]
        np.testing.assert_allclose(
            out["prob"][0, :, y, x], net.forward(data=window)["prob"][0], rtol=1e-4, atol=1e-6
        )
# Any size will do.
net_full_conv.blobs["data"].reshape(2, 3, 30, 26)
net_full_conv.reshape()
assert net_full_conv.forward()["prob"].shape == (2, 5, 9, 7)
print("map of classes", out["prob"][0].argmax(axis=0).shape)
