"""The classic models of pipeline parallelism at full size, as PyTorch modules.

vgg16, resnet50, alexnet, bert and gpt2 come from torchvision and transformers. gnmt8 and amoebanet-d are defined here
after their papers: "Google's Neural Machine Translation System" (Wu et al., 2016) with the attention on the first
layer's output, and "Regularized Evolution for Image Classifier Architecture Search" (Real et al., 2019) in the form
AmoebaNet-D (18 layers, 208 filters) that GPipe trains; and transformer, the base model of "Attention Is All You Need"
(Vaswani et al., 2017) with one table of words for both sides and the output.
"""
import math

import torch
from torch import nn


class Logits(nn.Module):
    """A model of transformers that takes and gives one tensor."""
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids):
        return self.model(input_ids=input_ids).logits


#===-----------------------------------------------------------------------===#
# GNMT with 8 layers
#===-----------------------------------------------------------------------===#

class Attention(nn.Module):
    """Additive attention: of (batch, m, width) queries over (batch, n, width) keys."""
    def __init__(self, width):
        super().__init__()
        self.query, self.key = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.score = nn.Linear(width, 1, bias=False)

    def forward(self, queries, keys):
        mixed = torch.tanh(self.query(queries).unsqueeze(2) + self.key(keys).unsqueeze(1))
        return torch.matmul(torch.softmax(self.score(mixed).squeeze(3), dim=2), keys)


class Gnmt(nn.Module):
    """source (batch, n) and target (batch, m) token numbers -> logits (batch, m, words) of the next target token."""
    def __init__(self, layers=8, width=1024, words=32000):
        super().__init__()
        self.embed_source, self.embed_target = nn.Embedding(words, width), nn.Embedding(words, width)
        self.both_ways = nn.LSTM(width, width, bidirectional=True, batch_first=True)
        self.encoder = nn.ModuleList(nn.LSTM(2 * width if i == 0 else width, width, batch_first=True)
                                     for i in range(layers - 1))
        self.first = nn.LSTM(width, width, batch_first=True)
        self.attention = Attention(width)
        self.decoder = nn.ModuleList(nn.LSTM(2 * width, width, batch_first=True) for _ in range(layers - 1))
        self.words = nn.Linear(width, words)

    def forward(self, source, target):
        keys = self.both_ways(self.embed_source(source))[0]
        for i, layer in enumerate(self.encoder):
            out = layer(keys)[0]
            keys = out if i == 0 else keys + out
        x = self.first(self.embed_target(target))[0]
        context = self.attention(x, keys)
        for i, layer in enumerate(self.decoder):
            out = layer(torch.cat((x, context), dim=2))[0]
            x = out if i == 0 else x + out
        return self.words(x)


#===-----------------------------------------------------------------------===#
# AmoebaNet-D
#===-----------------------------------------------------------------------===#

def convolution(inputs, outputs, kernel, stride=1):
    padding = tuple(k // 2 for k in kernel)
    return nn.Sequential(nn.ReLU(), nn.Conv2d(inputs, outputs, kernel, stride, padding, bias=False),
                         nn.BatchNorm2d(outputs))


class Halved(nn.Module):
    """Half as high and wide, from two grids of pixels that are one apart."""
    def __init__(self, inputs, outputs):
        super().__init__()
        self.left = nn.Conv2d(inputs, outputs // 2, 1, 2, bias=False)
        self.right = nn.Conv2d(inputs, outputs // 2, 1, 2, bias=False)
        self.norm = nn.BatchNorm2d(outputs)

    def forward(self, x):
        x = torch.relu(x)
        shifted = nn.functional.pad(x, (0, 1, 0, 1))[:, :, 1:, 1:]
        return self.norm(torch.cat((self.left(x), self.right(shifted)), dim=1))


def bottleneck(c, *kernels):
    """1 x 1 to a quarter of the channels, the kernels, 1 x 1 back."""
    inner = [convolution(c // 4, c // 4, kernel, stride) for kernel, stride in kernels]
    return nn.Sequential(convolution(c, c // 4, (1, 1)), *inner, convolution(c // 4, c, (1, 1)))


OPERATIONS = {
    "none": lambda c, stride: Halved(c, c) if stride == 2 else nn.Identity(),
    "conv1x1": lambda c, stride: convolution(c, c, (1, 1), stride),
    "conv3x3": lambda c, stride: bottleneck(c, ((3, 3), stride)),
    "conv1x7-7x1": lambda c, stride: bottleneck(c, ((1, 7), (1, stride)), ((7, 1), (stride, 1))),
    "max2x2": lambda c, stride: nn.MaxPool2d(2, stride),
    "max3x3": lambda c, stride: nn.MaxPool2d(3, stride, 1),
    "avg3x3": lambda c, stride: nn.AvgPool2d(3, stride, 1, count_include_pad=False),
}
# Which earlier state (0 and 1 are the cell's inputs) goes through which operation; two in a row make a new state.
NORMAL = ((1, "conv1x1"), (1, "max3x3"), (1, "none"), (0, "conv1x7-7x1"), (0, "conv1x1"), (0, "conv1x7-7x1"),
          (2, "max3x3"), (2, "none"), (1, "avg3x3"), (5, "conv1x1"))
NORMAL_RESULT = (0, 3, 4, 6)
REDUCTION = ((0, "max2x2"), (0, "max3x3"), (2, "none"), (1, "conv3x3"), (2, "conv1x7-7x1"), (2, "max3x3"), (3, "none"),
             (1, "max2x2"), (2, "avg3x3"), (3, "conv1x1"))
REDUCTION_RESULT = (4, 5, 6)


class Cell(nn.Module):
    """(state before last, last state) -> (last state, new state)."""
    def __init__(self, before, last, channels, reduces, halve_before):
        super().__init__()
        steps, self.result = (REDUCTION, REDUCTION_RESULT) if reduces else (NORMAL, NORMAL_RESULT)
        self.squeeze = convolution(last, channels, (1, 1))
        self.squeeze_before = Halved(before, channels) if halve_before else convolution(before, channels, (1, 1))
        self.sources = [source for source, _ in steps]
        self.operations = nn.ModuleList(OPERATIONS[name](channels, 2 if reduces and source < 2 else 1)
                                        for source, name in steps)
        self.channels = channels * len(self.result)

    def forward(self, before, last):
        states = [self.squeeze(last), self.squeeze_before(before)]
        for i in range(0, len(self.sources), 2):
            states.append(self.operations[i](states[self.sources[i]])
                          + self.operations[i + 1](states[self.sources[i + 1]]))
        return last, torch.cat([states[i] for i in self.result], dim=1)


class AmoebaNet(nn.Module):
    """images (batch, 3, 224, 224) -> logits (batch, 1000): a stem of two reductions, then thirds with one between."""
    def __init__(self, layers=18, filters=208, classes=1000):
        super().__init__()
        channels = filters // 4
        self.stem = nn.Conv2d(3, channels, 3, 2, 1, bias=False)
        self.norm = nn.BatchNorm2d(channels)
        before, last, halve = channels, channels, False
        cells = []
        for kind in ["reduction"] * 2 + (["normal"] * (layers // 3) + ["reduction"]) * 2 + ["normal"] * (layers // 3):
            reduces = kind == "reduction"
            if reduces:
                channels *= 2
            cell = Cell(before, last, channels, reduces, halve)
            before, last, halve = last, cell.channels, reduces
            cells.append(cell)
        self.cells = nn.ModuleList(cells)
        self.classify = nn.Linear(last, classes)

    def forward(self, images):
        before = last = self.norm(self.stem(images))
        for cell in self.cells:
            before, last = cell(before, last)
        return self.classify(last.mean(dim=(2, 3)))


#===-----------------------------------------------------------------------===#
# The Transformer
#===-----------------------------------------------------------------------===#

class Transformer(nn.Module):
    """source (batch, n) and target (batch, m) token numbers -> logits (batch, m, words) of the next target token."""
    def __init__(self, width=512, words=37000, longest=128):
        super().__init__()
        self.width, self.words = width, nn.Embedding(words, width)
        nn.init.normal_(self.words.weight, std=width ** -0.5)
        self.body = nn.Transformer(width, 8, 6, 6, 4 * width, dropout=0.0, batch_first=True)
        angles = torch.arange(longest)[:, None] * torch.exp(torch.arange(0, width, 2) * (-math.log(10000) / width))
        self.register_buffer("positions", torch.stack((angles.sin(), angles.cos()), 2).flatten(1))

    def forward(self, source, target):
        place = lambda tokens: self.words(tokens) * math.sqrt(self.width) + self.positions[:tokens.shape[1]]
        later = torch.full((target.shape[1],) * 2, float("-inf")).triu(1)
        return self.body(place(source), place(target), tgt_mask=later) @ self.words.weight.t()


#===-----------------------------------------------------------------------===#
# The table
#===-----------------------------------------------------------------------===#

def picture_model(name):
    import torchvision
    return getattr(torchvision.models, name)()


def bert(**size):
    from transformers import BertConfig, BertForMaskedLM
    return Logits(BertForMaskedLM(BertConfig(hidden_dropout_prob=0, attention_probs_dropout_prob=0, **size)))


def bert_large():
    return bert(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096)


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel
    return Logits(GPT2LMHeadModel(GPT2Config(use_cache=False, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)))


IMAGES, TOKENS = (3, 224, 224), (128,)
# name: module, {input: (shape of a sample, number of token values or None)}, labels, loss
MODELS = {
    "alexnet": (lambda: picture_model("alexnet"), {"images": (IMAGES, None)}, ("labels", (), 1000), "cross-entropy"),
    "vgg16": (lambda: picture_model("vgg16"), {"images": (IMAGES, None)}, ("labels", (), 1000), "cross-entropy"),
    "resnet50": (lambda: picture_model("resnet50"), {"images": (IMAGES, None)}, ("labels", (), 1000),
                 "cross-entropy"),
    "amoebanet-d": (AmoebaNet, {"images": (IMAGES, None)}, ("labels", (), 1000), "cross-entropy"),
    "gnmt8": (Gnmt, {"source": ((25,), 32000), "target": ((25,), 32000)}, ("labels", (25,), 32000), "cross-entropy"),
    "gpt2": (gpt2, {"input_ids": (TOKENS, 50257)}, None, "next-token"),
    "transformer": (Transformer, {"source": ((64,), 37000), "target": ((64,), 37000)}, ("labels", (64,), 37000),
                    "cross-entropy"),
    "bert": (bert, {"input_ids": (TOKENS, 30522)}, ("labels", TOKENS, 30522), "cross-entropy"),
    "bert-large": (bert_large, {"input_ids": (TOKENS, 30522)}, ("labels", TOKENS, 30522), "cross-entropy"),
}
