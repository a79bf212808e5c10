#!/usr/bin/env python3
"""Small Keras networks as TensorFlow's exporters write them, with the losses Keras computes: folders for elsewhere.py.

Usage: keras_models.py FOLDER [--only REGEX]

tf2onnx: convolutions between transposes (TensorFlow has the channels last), products and sums instead of Gemm, einsums
of attention, recurrent layers as LSTM and GRU nodes or as Loops. keras: Model.export(format="onnx"). Needs tensorflow-cpu, tf2onnx (PyPI).
"""
import os

os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="", OMP_NUM_THREADS="1")
import keras
import numpy as np
import tensorflow as tf
from keras import layers as L

from elsewhere import BATCH, MICROBATCHES, ROWS, STEPS, make_all, rows_of, save

MODELS, V, T = {}, 50, 10


def model(*inputs, label, exporter="tf2onnx", opset=17, rate=0.05):
    """Registers a function from layers' outputs to logits; inputs are (name, shape of a row, values or None)."""
    def register(function):
        MODELS[function.__name__.replace("_", "-")] = (function, inputs, label, exporter, opset, rate)
        return function
    return register


# tf2onnx leaves TensorFlow's Erfc of the exact one as it is, which no runtime knows.
gelu = lambda x: keras.activations.gelu(x, approximate=True)
PICTURE, WORDS, TABLE = ("x", (16, 16, 3), None), ("words", (T,), V), ("x", (8,), None)


@model(TABLE, label=4)
def dense(x):
    x = L.Dense(12, "relu")(x)
    x = L.Dense(12, "elu", use_bias=False)(x)
    return L.Dense(4)(L.Dense(10, "swish")(x))


@model(PICTURE, label=5)
def convolutions(x):
    x = L.MaxPool2D()(L.Conv2D(8, 3, padding="same", activation="relu")(x))
    x = L.Conv2D(12, 3, strides=2, padding="same", activation="relu")(x)
    return L.Dense(5)(L.Flatten()(x))


@model(PICTURE, label=5, opset=13)
def residual_norm(x):
    x = L.Conv2D(8, 3, padding="same", use_bias=False)(x)
    x = L.ReLU()(L.BatchNormalization()(x))
    y = L.Conv2D(8, 3, padding="same", use_bias=False)(x)
    y = L.Conv2D(8, 3, padding="same")(L.ReLU()(L.BatchNormalization()(y)))
    return L.Dense(5)(L.GlobalAveragePooling2D()(x + y))


@model(PICTURE, label=5, opset=15)
def depthwise(x):
    x = L.Conv2D(8, 3, strides=2, padding="same", activation="relu6")(x)
    x = L.DepthwiseConv2D(3, padding="same", activation="relu6")(x)
    x = L.SeparableConv2D(12, 3, strides=2, padding="same", activation="hard_swish")(x)
    s = L.Dense(12, "hard_sigmoid")(L.Dense(6, "relu")(L.GlobalAveragePooling2D(keepdims=True)(x)))
    return L.Dense(5)(L.GlobalMaxPooling2D()(x * s))


@model(("picture", (16, 16, 3), "bytes"), label=5)
def bytes_of_pictures(picture):
    x = L.Rescaling(1 / 127.5, offset=-1)(picture)
    x = L.AveragePooling2D(2)(L.Conv2D(8, 5, strides=2, activation=gelu)(x))
    return L.Dense(5)(L.Flatten()(x))


@model(PICTURE, label=(16, 16, 3), opset=18)
def autoencoder(x):
    x = L.LeakyReLU(0.1)(L.Conv2D(8, 3, strides=2, padding="same")(x))
    x = L.Conv2DTranspose(8, 3, strides=2, padding="same", activation="tanh")(x)
    x = L.UpSampling2D(2, interpolation="bilinear")(L.MaxPool2D()(x))
    return L.Conv2D(3, 3, padding="same", activation="sigmoid")(x)


@model(WORDS, label=4)
def lstm(words):
    x = L.Embedding(V, 8)(words)
    x = L.LSTM(10, return_sequences=True)(x)
    return L.Dense(4)(L.LSTM(12)(x))


@model(WORDS, label=4)
def gru_both_ways(words):
    x = L.Bidirectional(L.GRU(8, return_sequences=True))(L.Embedding(V, 8)(words))
    return L.Dense(4)(L.GRU(6, reset_after=False)(x))


@model(WORDS, label=4)
def simple_rnn(words):
    x = L.Embedding(V, 8)(words)
    return L.Dense(4)(L.SimpleRNN(10, unroll=True)(L.SimpleRNN(8, return_sequences=True)(x)))


@model(WORDS, label=4)
def masked_lstm(words):
    return L.Dense(4)(L.LSTM(10)(L.Embedding(V, 8, mask_zero=True)(words)))


@model(WORDS, label=4)
def word_convolutions(words):
    x = L.Embedding(V, 8)(words)
    parts = [L.GlobalMaxPooling1D()(L.Conv1D(6, k, activation="relu", padding=p)(x))
             for k, p in ((2, "valid"), (3, "same"), (4, "causal"))]
    return L.Dense(4)(L.Concatenate()(parts))


@model(WORDS, label=V, opset=18)
def transformer(words):
    place = keras.ops.arange(T)
    x = L.Embedding(V, 16)(words) + L.Embedding(T, 16)(place)
    for _ in range(2):
        x = L.LayerNormalization(epsilon=1e-5)(x + L.MultiHeadAttention(4, 4)(x, x, use_causal_mask=True))
        x = L.LayerNormalization()(x + L.Dense(16)(L.Dense(32, gelu)(x)))
    return L.Dense(V)(x[:, -1])


@model(("user", (), V), ("item", (), V), ("x", (6,), None), label="bits")
def recommender(user, item, x):
    u, i = L.Embedding(V, 8)(user), L.Embedding(V, 8)(item)
    y = L.Dense(8, "relu")(L.Concatenate()([u, i, L.Normalization(mean=0.5, variance=2.0)(x)]))
    return L.Dense(1)(L.Concatenate()([y, L.Dot(1)([u, i])]))


@model(("video", (4, 8, 8, 2), None), label=3)
def video(video):
    x = L.MaxPool3D((1, 2, 2))(L.Conv3D(6, 3, padding="same", activation="relu")(video))
    x = L.TimeDistributed(L.Conv2D(4, 3, activation="relu"))(x)
    return L.Dense(3)(L.Flatten()(x))


@model(("video", (4, 8, 8, 2), None), label=3)
def conv_lstm(video):
    return L.Dense(3)(L.GlobalAveragePooling2D()(L.ConvLSTM2D(5, 3, padding="same")(video)))


@model(PICTURE, label=5, opset=18)
def norms(x):
    x = L.GroupNormalization(4)(L.Conv2D(8, 3, dilation_rate=2, padding="same")(x))
    x = L.UnitNormalization()(L.PReLU(shared_axes=[1, 2])(x))
    x = L.LayerNormalization(axis=[1, 2, 3])(L.Cropping2D(1)(L.ZeroPadding2D(2)(x)))
    return L.Dense(5)(L.Permute((2, 1))(L.Reshape((-1, 8))(x))[:, 0])


@model(("x", (32, 32, 3), None), label=10)
def mobilenet_v2(x):
    body = keras.applications.MobileNetV2(input_tensor=x, alpha=0.35, weights=None, include_top=False, pooling="avg")
    return L.Dense(10)(body.output)


@model(("x", (32, 32, 3), None), label=10)
def efficientnet_b0(x):
    body = keras.applications.EfficientNetB0(input_tensor=x, weights=None, include_top=False, pooling="avg")
    return L.Dense(10)(body.output)


@model(PICTURE, label=5, exporter="keras", opset=18)
def keras_convolutions(x):
    x = L.MaxPool2D(3, 2, "same")(L.Conv2D(8, 3, padding="same", activation="relu")(x))
    x = L.Conv2D(12, 3, dilation_rate=2, activation="selu")(x)
    return L.Dense(5)(L.GlobalAveragePooling2D()(x))


@model(WORDS, label=V, exporter="keras", opset=18)
def keras_attention(words):
    x = L.Embedding(V, 16)(words)
    x = x + L.GroupQueryAttention(4, 4, 2)(x, x)
    x = L.RMSNormalization()(x + L.Attention()([x, x, x]))
    return L.Dense(V)(x[:, -1])


# ------------------------------------------------------------------------------------------- data and training

def arrays_of(inputs, label):
    random, arrays = np.random.default_rng(1), {}
    for name, shape, values in inputs:
        arrays[name] = (random.standard_normal((ROWS, *shape)).astype("float32") if values is None else
                        random.integers(0, 256, (ROWS, *shape)).astype("uint8") if values == "bytes" else
                        random.integers(0, values, (ROWS, *shape)).astype("int32"))
    arrays["labels"] = (random.integers(0, 2, (ROWS, 1)).astype("float32") if label == "bits" else
                        random.integers(0, label, ROWS) if isinstance(label, int) else
                        random.random((ROWS, *label)).astype("float32"))
    return arrays


def loss_of(label, logits, labels):
    if label == "bits":
        return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels, logits))
    if isinstance(label, int):
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
    return tf.reduce_mean((logits - labels) ** 2)


def train(net, names, arrays, label, rate):
    """The loss of every step: SGD with momentum as PyTorch has it."""
    weights, losses = net.trainable_variables, []
    moments = [0.0] * len(weights)
    for step in range(STEPS):
        total, sums = 0.0, [0.0] * len(weights)
        for k in range(MICROBATCHES):
            rows = rows_of(step, k)
            with tf.GradientTape() as tape:
                loss = loss_of(label, net([arrays[name][rows] for name in names], training=True), arrays["labels"][rows])
            slopes = tape.gradient(loss, [w.value for w in weights])
            sums = [a + tf.convert_to_tensor(g) / MICROBATCHES for a, g in zip(sums, slopes)]
            total += float(loss) / MICROBATCHES
        moments = [0.9 * m + g for m, g in zip(moments, sums)]
        for weight, moment in zip(weights, moments):
            weight.assign(weight - rate * moment)
        losses.append(total)
    return losses


def export(net, inputs, arrays, exporter, opset, path):
    signature = [tf.TensorSpec((None, *shape), arrays[name].dtype, name=name) for name, shape, _ in inputs]
    if exporter == "keras":
        return net.export(path, format="onnx", input_signature=signature, opset_version=opset, verbose=False)
    import tf2onnx
    tf2onnx.convert.from_keras(net, input_signature=signature, opset=opset, output_path=path)


def make(name, folder):
    function, inputs, label, exporter, opset, rate = MODELS[name]
    keras.utils.set_random_seed(0)
    arrays = arrays_of(inputs, label)
    tensors = [keras.Input(shape, name=key, dtype=str(arrays[key].dtype)) for key, shape, _ in inputs]
    net = keras.Model(tensors, function(*tensors))
    random = np.random.default_rng(2)
    for weight in net.trainable_variables: # no two equal ones, and none that is 0
        weight.assign(weight + 0.02 * random.standard_normal(weight.shape))
    export(net, inputs, arrays, exporter, opset, f"{folder}/model.onnx")
    count = sum(int(np.prod(w.shape)) for w in net.trainable_variables)
    losses = train(net, [key for key, _, _ in inputs], arrays, label, rate)
    save(folder, arrays, of="Keras", exporter=f"{exporter}, opset {opset}", losses=losses, elements=count, inputs=[key for key, _, _ in inputs],
         loss="bce" if label == "bits" else "cross-entropy" if isinstance(label, int) else "mse", rate=rate)


if __name__ == "__main__":
    make_all(__doc__, MODELS, "keras-", make)
