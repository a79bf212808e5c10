"""Networks on images: torchvision's in small, and what it has not."""
import pathlib
import sys

import torch
import torch.nn.functional as F
import torchvision.models as tv
from torch import nn

from case import ROWS, Case, classes, family, images, random

SLOW = "sgd:lr=0.01,momentum=0.9"


def classifier(model, size=32, channels=3, optimizer=SLOW, **more):
    x, labels = images((channels, size, size), 10)
    return Case(model, {"input": x}, {"labels": labels}, optimizer=optimizer, **more)


C = "convolutional"


@family(C)
def lenet():
    return classifier(nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.Tanh(), nn.AvgPool2d(2), nn.Conv2d(6, 16, 5), nn.Tanh(), nn.AvgPool2d(2),
        nn.Flatten(), nn.Linear(16 * 36, 60), nn.Tanh(), nn.Linear(60, 10)), channels=1)


def alexnet_layers(*norms):
    return nn.Sequential(
        nn.Conv2d(3, 12, 11, stride=4, padding=2), nn.ReLU(True), *norms[:1], nn.MaxPool2d(3, 2),
        nn.Conv2d(12, 24, 5, padding=2, groups=2), nn.ReLU(True), *norms[1:], nn.MaxPool2d(3, 2),
        nn.Conv2d(24, 32, 3, padding=1), nn.ReLU(True), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d((1, 1)), nn.Flatten(),
        nn.Dropout(), nn.Linear(32, 48), nn.ReLU(True), nn.Dropout(), nn.Linear(48, 10))


family(C, "alexnet")(lambda: classifier(alexnet_layers(), 96))
family(C, "alexnet-lrn")(lambda: classifier(alexnet_layers(nn.LocalResponseNorm(5, k=2.0), nn.LocalResponseNorm(3)), 96))


@family(C)
def vgg():
    net = tv.VGG(tv.vgg.make_layers([8, "M", 16, "M", 24, 24, "M"], batch_norm=True), num_classes=10, dropout=0.0)
    net.avgpool = nn.AdaptiveAvgPool2d((2, 2))
    net.classifier = nn.Sequential(nn.Linear(96, 64), nn.ReLU(True), nn.Dropout(), nn.Linear(64, 10))
    return classifier(net)


@family(C)
def resnet():
    return classifier(tv.ResNet(tv.resnet.Bottleneck, [1, 1, 1, 1], num_classes=10, width_per_group=8, groups=2), 64,
                      optimizer="sgd:lr=0.001")


@family(C, "amoebanet-d")
def amoebanet():
    """The full-size model of examples/classic, with fewer cells and filters."""
    sys.path.append(str(pathlib.Path(__file__).resolve().parents[3] / "examples" / "classic"))
    from models import AmoebaNet
    return classifier(AmoebaNet(3, 32, 10), 128, optimizer="sgd:lr=0.0001", batch=6)


family(C, "densenet")(lambda: classifier(tv.DenseNet(8, (2, 2, 2), 16, num_classes=10), 64))
family(C, "mobilenet-v2")(lambda: classifier(tv.MobileNetV2(10, 0.25, [
    [1, 16, 1, 1], [6, 24, 2, 2], [6, 32, 2, 2]]), 64))


@family(C)
def mobilenet_v3():
    row = lambda *a: tv.mobilenetv3.InvertedResidualConfig(*a, 1, 1.0)
    return classifier(tv.MobileNetV3([row(16, 3, 16, 16, True, "RE", 2), row(16, 3, 40, 24, False, "RE", 2),
                                      row(24, 5, 48, 24, True, "HS", 1)], 64, num_classes=10), 64)


@family(C)
def efficientnet():
    row = tv.efficientnet.MBConvConfig
    return classifier(tv.EfficientNet([row(1, 3, 1, 8, 8, 1, 1.0, 1.0), row(4, 5, 2, 8, 16, 2, 1.0, 1.0)], 0.0,
                                      num_classes=10), 64)


@family(C)
def efficientnet_v2():
    row = tv.efficientnet
    return classifier(tv.EfficientNet([row.FusedMBConvConfig(1, 3, 1, 8, 8, 1), row.FusedMBConvConfig(4, 3, 2, 8, 16, 1),
                                       row.MBConvConfig(4, 3, 2, 16, 24, 1, 1.0, 1.0)], 0.0, num_classes=10,
                                      last_channel=64), 64)


@family(C)
def convnext():
    row = tv.convnext.CNBlockConfig
    return classifier(tv.ConvNeXt([row(16, 32, 1), row(32, 48, 2), row(48, None, 1)], 0.0, layer_scale=0.1,
                                  num_classes=10), 64)


family(C, "squeezenet")(lambda: classifier(tv.SqueezeNet("1_1", 10, 0.0), 64))
family(C, "shufflenet")(lambda: classifier(tv.ShuffleNetV2([2, 2, 2], [8, 16, 32, 48, 64], 10), 64))
family(C, "mnasnet")(lambda: classifier(tv.MNASNet(0.2, 10, 0.0), 96, optimizer="sgd:lr=0.001"))


@family(C)
def regnet():
    params = tv.regnet.BlockParams.from_init_params(depth=6, w_0=16, w_a=12.0, w_m=2.0, group_width=8, se_ratio=0.25)
    return classifier(tv.RegNet(params, num_classes=10), 64)


@family(C)
def inception_cells():
    """Inception-v3's cells without its stem: the whole network, and GoogLeNet, are chaotic in f32 at this size."""
    cells = tv.inception
    return classifier(nn.Sequential(cells.InceptionA(3, 8), cells.InceptionB(232), nn.AdaptiveAvgPool2d(1),
                                    nn.Flatten(), nn.Linear(712, 10)), 35)


@family("vision transformer")
def swin_torchvision():
    return classifier(tv.SwinTransformer([2, 2], 16, [2, 2], [2, 4], [4, 4], stochastic_depth_prob=0.0, num_classes=10))


@family("vision transformer")
def vit_torchvision():
    return classifier(tv.VisionTransformer(32, 8, 2, 4, 32, 64, num_classes=10))


@family("vision transformer")
def maxvit():
    return classifier(tv.MaxVit((32, 32), 8, 4, [16], [1], 8, stochastic_depth_prob=0.0, num_classes=10))


# Cells as architecture search finds them: separable convolutions, dilated ones, poolings, sums and concatenations.

class Separable(nn.Sequential):
    """A depthwise and a pointwise convolution, twice."""

    def __init__(self, width, size, stride):
        once = lambda step: (nn.ReLU(), nn.Conv2d(width, width, size, step, size // 2, groups=width, bias=False),
                             nn.Conv2d(width, width, 1, bias=False), nn.BatchNorm2d(width))
        super().__init__(*once(stride), *once(1))


class Cell(nn.Module):
    def __init__(self, before, now, width, stride):
        super().__init__()
        squeeze = lambda a: nn.Sequential(nn.ReLU(), nn.Conv2d(a, width, 1, bias=False), nn.BatchNorm2d(width))
        self.left, self.right = squeeze(before), squeeze(now)
        self.a, self.b = Separable(width, 5, stride), Separable(width, 3, stride)
        self.dilated = nn.Sequential(nn.ReLU(), nn.Conv2d(width, width, 3, stride, 2, 2, width, bias=False),
                                     nn.Conv2d(width, width, 1, bias=False), nn.BatchNorm2d(width))
        self.average, self.maximum = nn.AvgPool2d(3, stride, 1, count_include_pad=False), nn.MaxPool2d(3, stride, 1)

    def forward(self, before, now):
        before, now = self.left(before), self.right(now)
        x = self.a(before) + self.average(now)
        y = self.b(now) + self.maximum(before)
        z = self.dilated(now) + self.average(before)
        return torch.cat((x, y, z), 1)


class NasNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 12, 3, padding=1, bias=False), nn.BatchNorm2d(12))
        self.normal, self.reduce = Cell(12, 12, 8, 1), Cell(24, 24, 8, 2)
        self.adapt, self.head = nn.Conv2d(12, 24, 1), nn.Linear(24, 10)

    def forward(self, input):
        x = self.stem(input)
        y = self.normal(x, x)
        return self.head(F.relu(self.reduce(self.adapt(x), y)).mean((2, 3)))


family(C, "nas-cells")(lambda: classifier(NasNet()))


# Dense outputs.

def dense(model, size=32, count=5, **more):
    x, labels = images((3, size, size), 10)
    labels = random(2).integers(0, count, (ROWS, size, size))
    labels[:, :3] = -100
    return Case(model, {"input": x}, {"labels": labels}, optimizer=SLOW, **more)


class UNet(nn.Module):
    def __init__(self, mode):
        super().__init__()
        block = lambda a, b: nn.Sequential(nn.Conv2d(a, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU(True),
                                           nn.Conv2d(b, b, 3, padding=1), nn.ReLU(True))
        self.a, self.b, self.c = block(3, 8), block(8, 16), block(16, 24)
        self.mode, self.up = mode, nn.ConvTranspose2d(24, 24, 3, 2, 1, 1)
        self.d, self.e, self.head = block(40, 16), block(24, 8), nn.Conv2d(8, 5, 1)

    def larger(self, x):
        if self.mode == "nearest":
            return F.interpolate(x, scale_factor=2, mode="nearest")
        return F.interpolate(x, size=(2 * x.shape[2], 2 * x.shape[3]), mode=self.mode, align_corners=True)

    def forward(self, input):
        a = self.a(input)
        b = self.b(F.max_pool2d(a, 2))
        c = self.up(self.c(F.max_pool2d(b, 2)))
        return self.head(self.e(torch.cat((a, self.larger(self.d(torch.cat((b, c), 1)))), 1)))


G = "segmentation"
family(G, "unet-bilinear")(lambda: dense(UNet("bilinear")))
family(G, "unet-nearest")(lambda: dense(UNet("nearest")))
family(G, "unet-bicubic")(lambda: dense(UNet("bicubic")))


class Segmenter(nn.Module):
    """torchvision's heads over a small backbone; the output has the size of the input."""

    def __init__(self, head):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
                                      nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU())
        self.head = head

    def forward(self, input):
        return F.interpolate(self.head(self.backbone(input)), size=input.shape[-2:], mode="bilinear",
                             align_corners=False)


family(G, "fcn")(lambda: dense(Segmenter(tv.segmentation.fcn.FCNHead(16, 5))))
family(G, "deeplab-v3")(lambda: dense(Segmenter(tv.segmentation.deeplabv3.DeepLabHead(16, 5, (2, 4))), 48))


class SuperResolution(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.slope = nn.Conv2d(3, 16, 5, padding=2), nn.Conv2d(16, 12, 3, padding=1), nn.PReLU()

    def forward(self, input):
        return F.pixel_shuffle(self.b(self.slope(self.a(F.pad(input, (1, 1, 1, 1), mode="reflect")))), 2)[:, :, 2:-2, 2:-2]


@family("dense outputs")
def super_resolution():
    x, _ = images((3, 16, 16), 4)
    y = random(4).standard_normal((ROWS, 3, 32, 32)).astype("float32")
    return Case(SuperResolution(), {"input": x}, {"targets": y}, loss="mse", optimizer=SLOW)


@family("dense outputs")
def autoencoder():
    x, _ = images((3, 16, 16), 4)
    net = nn.Sequential(nn.Conv2d(3, 12, 3, 2, 1), nn.LeakyReLU(0.1), nn.Conv2d(12, 24, 3, 2, 1), nn.GELU(),
                        nn.ConvTranspose2d(24, 12, 4, 2, 1), nn.Softplus(), nn.ConvTranspose2d(12, 3, 4, 2, 1), nn.Tanh())
    return Case(net, {"input": x}, {"targets": x}, loss="mse", optimizer=SLOW)


@family("dense outputs")
def generator():
    """DCGAN's."""
    z = random().standard_normal((ROWS, 16, 1, 1)).astype("float32")
    layers = []
    for a, b, size, stride, pad in ((16, 24, 4, 1, 0), (24, 16, 4, 2, 1), (16, 8, 4, 2, 1)):
        layers += [nn.ConvTranspose2d(a, b, size, stride, pad, bias=False), nn.BatchNorm2d(b), nn.ReLU(True)]
    y = random(4).standard_normal((ROWS, 3, 32, 32)).astype("float32")
    return Case(nn.Sequential(*layers, nn.ConvTranspose2d(8, 3, 4, 2, 1), nn.Tanh()), {"input": z}, {"targets": y},
                loss="mse", optimizer=SLOW)


@family(C)
def video():
    """Convolutions over time, height and width."""
    x = random().standard_normal((ROWS, 3, 8, 16, 16)).astype("float32")
    net = nn.Sequential(nn.Conv3d(3, 8, 3, padding=1, bias=False), nn.BatchNorm3d(8), nn.ReLU(), nn.MaxPool3d(2),
                        nn.Conv3d(8, 12, (1, 3, 3), padding=(0, 1, 1)), nn.ReLU(),
                        nn.Conv3d(12, 12, (3, 1, 1), padding=(1, 0, 0)), nn.ReLU(), nn.AdaptiveAvgPool3d(1),
                        nn.Flatten(), nn.Linear(12, 6))
    return Case(net, {"input": x}, {"labels": classes(6)}, optimizer=SLOW)


class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches, self.norm, self.head = nn.Conv2d(3, 24, 8, 8), nn.LayerNorm(24), nn.Linear(24, 10)
        mlp = lambda a, b: nn.Sequential(nn.Linear(a, b), nn.GELU(), nn.Linear(b, a))
        self.blocks = nn.ModuleList(nn.ModuleList((nn.LayerNorm(24), mlp(16, 12), nn.LayerNorm(24), mlp(24, 48)))
                                    for _ in range(2))

    def forward(self, input):
        x = self.patches(input).flatten(2).transpose(1, 2)
        for norm1, tokens, norm2, channels in self.blocks:
            x = x + tokens(norm1(x).transpose(1, 2)).transpose(1, 2)
            x = x + channels(norm2(x))
        return self.head(self.norm(x).mean(1))


family("mixer", "mlp-mixer")(lambda: classifier(Mixer()))
