"""Python layers for finetune.py: a data layer and a loss, as one writes them for pycaffe."""

import caffe
import numpy as np
import yaml_free_params as params


class ToyDataLayer(caffe.Layer):
    """Batches of (image, label): a bright square in one of the corners says which class it is."""

    def setup(self, bottom, top):
        self.top_names = ["data", "label"]
        settings = params.read(self.param_str)
        self.batch_size = settings["batch_size"]
        self.classes = settings["classes"]
        self.rng = np.random.RandomState(settings["seed"])
        if len(top) != 2:
            raise Exception("Need two tops: data and label.")
        if len(bottom) != 0:
            raise Exception("Do not define a bottom.")
        top[0].reshape(self.batch_size, 1, 8, 8)
        top[1].reshape(self.batch_size)

    def reshape(self, bottom, top):
        pass

    def forward(self, bottom, top):
        for i in range(self.batch_size):
            label = self.rng.randint(self.classes)
            image = self.rng.rand(8, 8) * 0.3
            y, x = 4 * (label // 2), 4 * (label % 2)
            image[y : y + 4, x : x + 4] += 1
            top[0].data[i, 0] = image
            top[1].data[i] = label

    def backward(self, top, propagate_down, bottom):
        pass


class ScaleLayer(caffe.Layer):
    """Learns one factor: a Python layer with a weight of its own."""

    def setup(self, bottom, top):
        self.blobs.add_blob(1)
        self.blobs[0].data[...] = 1

    def reshape(self, bottom, top):
        top[0].reshape(*bottom[0].data.shape)

    def forward(self, bottom, top):
        top[0].data[...] = bottom[0].data * self.blobs[0].data[0]

    def backward(self, top, propagate_down, bottom):
        self.blobs[0].diff[0] += (top[0].diff * bottom[0].data).sum()
        if propagate_down[0]:
            bottom[0].diff[...] = top[0].diff * self.blobs[0].data[0]
