"""Language models of transformers: decoders, encoders, encoder-decoders."""
import numpy as np
import transformers as t

from case import ROWS, Case, Logits, classes, family, images, padding, random, tokens

V, T = 96, 16
COMMON = dict(vocab_size=V, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
              max_position_embeddings=32, bos_token_id=0, eos_token_id=1, pad_token_id=2, tie_word_embeddings=False)


def decoder(model, mask=False, positions=False, cache=False, flags=(), dynamic=(), **more):
    inputs = {"input_ids": tokens(T, V)}
    if mask:
        inputs["attention_mask"] = padding(T)
    if positions:
        inputs["position_ids"] = np.tile(np.arange(T), (ROWS, 1)).astype(np.int64)
    layers = model.config.num_hidden_layers
    extra = {} if cache else {"use_cache": False}
    return Case(Logits(model, list(inputs), cache, **extra), inputs, loss="next-token", flags=flags, dynamic=dynamic,
                outputs=1 + 2 * layers * cache, **more)


def gpt2(**more):
    return t.GPT2LMHeadModel(t.GPT2Config(n_layer=2, n_embd=32, n_head=4, n_positions=32, vocab_size=V, bos_token_id=0,
                                          eos_token_id=0, **more))


def llama(**more):
    return t.LlamaForCausalLM(t.LlamaConfig(**{**COMMON, "num_key_value_heads": 2, **more}))


D, E, S = "decoder", "encoder", "encoder-decoder"
family(D, "gpt2")(lambda: decoder(gpt2()))
family(D, "gpt2-mask-positions")(lambda: decoder(gpt2(), True, True))
family(D, "gpt2-cache")(lambda: decoder(gpt2(tie_word_embeddings=False), True, cache=True))
family(D, "opt")(lambda: decoder(opt(), True))
family(D, "opt-no-mask")(lambda: decoder(opt()))
family(D, "gpt-neox")(lambda: decoder(t.GPTNeoXForCausalLM(t.GPTNeoXConfig(**COMMON)), True))
family(D, "gpt-neo")(lambda: decoder(t.GPTNeoForCausalLM(t.GPTNeoConfig(
    vocab_size=V, hidden_size=32, num_layers=2, num_heads=4, attention_types=[[["global", "local"], 1]], window_size=8,
    max_position_embeddings=32, intermediate_size=64, bos_token_id=0, eos_token_id=1, tie_word_embeddings=False))))
family(D, "gptj")(lambda: decoder(t.GPTJForCausalLM(t.GPTJConfig(
    vocab_size=V, n_embd=32, n_layer=2, n_head=4, n_positions=32, rotary_dim=4, bos_token_id=0, eos_token_id=1))))
family(D, "bloom")(lambda: decoder(t.BloomForCausalLM(t.BloomConfig(
    vocab_size=V, hidden_size=32, n_layer=2, n_head=4, bos_token_id=0, eos_token_id=1)), True))
family(D, "llama")(lambda: decoder(llama()))
family(D, "llama-mask-positions-cache")(lambda: decoder(llama(), True, True, True))
family(D, "llama-any-length")(lambda: decoder(llama(), True, dynamic=("sequence",)))
family(D, "llama-tied")(lambda: decoder(llama(tie_word_embeddings=True)))
family(D, "mistral")(lambda: decoder(t.MistralForCausalLM(t.MistralConfig(
    **COMMON, num_key_value_heads=2, sliding_window=6)), True))
family(D, "qwen2")(lambda: decoder(t.Qwen2ForCausalLM(t.Qwen2Config(**COMMON, num_key_value_heads=2)), True, True))
family(D, "qwen3")(lambda: decoder(t.Qwen3ForCausalLM(t.Qwen3Config(**COMMON, num_key_value_heads=2, head_dim=8)),
                                   True))
family(D, "gemma")(lambda: decoder(t.GemmaForCausalLM(t.GemmaConfig(**COMMON, num_key_value_heads=1, head_dim=8)),
                                   True, cache=True))
family(D, "gemma2")(lambda: decoder(t.Gemma2ForCausalLM(t.Gemma2Config(
    **COMMON, num_key_value_heads=2, head_dim=8, sliding_window=6)), True))
family(D, "gemma3")(lambda: decoder(t.Gemma3ForCausalLM(t.Gemma3TextConfig(
    **COMMON, num_key_value_heads=2, head_dim=8, sliding_window=6)), True))
family(D, "phi")(lambda: decoder(t.PhiForCausalLM(t.PhiConfig(**COMMON)), True))
family(D, "phi3")(lambda: decoder(t.Phi3ForCausalLM(t.Phi3Config(**COMMON, num_key_value_heads=2))))
family(D, "falcon")(lambda: decoder(t.FalconForCausalLM(t.FalconConfig(
    vocab_size=V, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, bos_token_id=0, eos_token_id=1,
    tie_word_embeddings=False)), True))
family(D, "stablelm")(lambda: decoder(t.StableLmForCausalLM(t.StableLmConfig(**COMMON, num_key_value_heads=2))))
family(D, "olmo2")(lambda: decoder(t.Olmo2ForCausalLM(t.Olmo2Config(**COMMON, num_key_value_heads=2)), True))
family(D, "starcoder2")(lambda: decoder(t.Starcoder2ForCausalLM(t.Starcoder2Config(
    **COMMON, num_key_value_heads=2, sliding_window=6))))


def opt():
    return t.OPTForCausalLM(t.OPTConfig(vocab_size=V, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                                        ffn_dim=64, max_position_embeddings=32, bos_token_id=0, eos_token_id=1,
                                        pad_token_id=2, word_embed_proj_dim=32))


# Encoders: a class of each row, tokens padded behind its end.

def encoder(model, count=4, segments=False, **more):
    mask, labels = padding(T), classes(count)
    ids = tokens(T, V) * mask
    ids[:, 1] = 10 + labels
    inputs = {"input_ids": ids, "attention_mask": mask}
    if segments:
        inputs["token_type_ids"] = (np.arange(T)[None] >= T // 2).astype(np.int64) * mask
    return Case(Logits(model, list(inputs)), inputs, {"labels": labels}, **more)


ENCODER = dict(vocab_size=V, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
               max_position_embeddings=36, num_labels=4)
family(E, "bert")(lambda: encoder(t.BertForSequenceClassification(t.BertConfig(**ENCODER)), segments=True))
family(E, "distilbert")(lambda: encoder(t.DistilBertForSequenceClassification(t.DistilBertConfig(
    vocab_size=V, dim=32, n_layers=2, n_heads=4, hidden_dim=64, max_position_embeddings=32, num_labels=4))))
family(E, "roberta")(lambda: encoder(t.RobertaForSequenceClassification(t.RobertaConfig(**ENCODER, pad_token_id=1))))
family(E, "albert")(lambda: encoder(t.AlbertForSequenceClassification(t.AlbertConfig(
    **ENCODER, embedding_size=16)), segments=True))
family(E, "electra")(lambda: encoder(t.ElectraForSequenceClassification(t.ElectraConfig(
    **ENCODER, embedding_size=16)), segments=True))
family(E, "mpnet")(lambda: encoder(t.MPNetForSequenceClassification(t.MPNetConfig(**ENCODER))))
family(E, "deberta-v2")(lambda: encoder(t.DebertaV2ForSequenceClassification(t.DebertaV2Config(
    **ENCODER, relative_attention=True, position_biased_input=False, pos_att_type=["p2c", "c2p"],
    pooler_hidden_size=32))))
family(E, "modernbert")(lambda: encoder(t.ModernBertForSequenceClassification(t.ModernBertConfig(
    vocab_size=V, hidden_size=32, num_hidden_layers=3, num_attention_heads=4, intermediate_size=64, num_labels=4,
    max_position_embeddings=32, local_attention=8, pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1,
    sep_token_id=2, attn_implementation="sdpa", reference_compile=False))))


@family(E)
def bert_masked_lm():
    made = encoder(t.BertForMaskedLM(t.BertConfig(**ENCODER)))
    labels = np.where(random(5).random((ROWS, T)) < 0.3, made.inputs["input_ids"], -100).astype(np.int64)
    labels[:, 0] = 5
    made.labels = {"labels": labels}
    return made


# Encoder-decoders.

def translator(model, **more):
    target = tokens(12, V, seed=7)
    inputs = {"input_ids": tokens(T, V), "attention_mask": padding(T),
              "decoder_input_ids": np.concatenate([np.zeros((ROWS, 1), np.int64), target[:, :-1]], 1)}
    return Case(Logits(model, list(inputs), use_cache=False), inputs, {"labels": target}, **more)


SEQ2SEQ = dict(vocab_size=V, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
               decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, max_position_embeddings=32,
               pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=0)
T5 = dict(vocab_size=V, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, relative_attention_num_buckets=8,
          relative_attention_max_distance=12, decoder_start_token_id=0)
family(S, "t5")(lambda: translator(t.T5ForConditionalGeneration(t.T5Config(**T5))))
family(S, "t5-gated")(lambda: translator(t.T5ForConditionalGeneration(t.T5Config(
    **T5, feed_forward_proj="gated-gelu", tie_word_embeddings=False))))
family(S, "bart")(lambda: translator(t.BartForConditionalGeneration(t.BartConfig(**SEQ2SEQ))))
family(S, "marian")(lambda: translator(t.MarianMTModel(t.MarianConfig(**SEQ2SEQ))))
family(S, "pegasus")(lambda: translator(t.PegasusForConditionalGeneration(t.PegasusConfig(**SEQ2SEQ))))


@family(S)
def whisper():
    config = t.WhisperConfig(vocab_size=V, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
                             decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, num_mel_bins=8,
                             max_source_positions=16, max_target_positions=24, pad_token_id=0, bos_token_id=1,
                             eos_token_id=2, decoder_start_token_id=0, suppress_tokens=None, begin_suppress_tokens=None)
    target = tokens(12, V, seed=7)
    inputs = {"input_features": random().standard_normal((ROWS, 8, 32)).astype(np.float32),
              "decoder_input_ids": np.concatenate([np.zeros((ROWS, 1), np.int64), target[:, :-1]], 1)}
    return Case(Logits(t.WhisperForConditionalGeneration(config), list(inputs), use_cache=False), inputs,
                {"labels": target})


@family(S)
def whisper_mask():
    made = whisper()
    made.inputs["decoder_attention_mask"] = np.ones((ROWS, 12), np.int64)
    made.model.names = list(made.inputs)
    return made


@family("audio")
def wav2vec2():
    config = t.Wav2Vec2Config(vocab_size=V, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                              intermediate_size=64, conv_dim=(16, 16, 16), conv_stride=(5, 2, 2),
                              conv_kernel=(10, 3, 3), num_feat_extract_layers=3, num_conv_pos_embeddings=8,
                              num_conv_pos_embedding_groups=4, layerdrop=0.0, mask_time_prob=0.0,
                              classifier_proj_size=16, num_labels=5, mask_feature_prob=0.0)
    labels = classes(5)
    wave = np.sin(np.arange(400)[None] * 0.02 * (labels[:, None] + 1)) + 0.1 * random().standard_normal((ROWS, 400))
    return Case(Logits(t.Wav2Vec2ForSequenceClassification(config), ["input_values"]),
                {"input_values": wave.astype(np.float32)}, {"labels": labels})


# Images and texts.

VISION = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, image_size=32,
              patch_size=8, num_labels=10)


def vision(model, size=32, **more):
    x, labels = images((3, size, size), 10)
    return Case(Logits(model, ["pixel_values"]), {"pixel_values": x}, {"labels": labels}, **more)


W = "vision transformer"
family(W, "vit")(lambda: vision(t.ViTForImageClassification(t.ViTConfig(**VISION))))
family(W, "deit")(lambda: vision(t.DeiTForImageClassification(t.DeiTConfig(**VISION))))
family(W, "beit")(lambda: vision(t.BeitForImageClassification(t.BeitConfig(
    **VISION, use_relative_position_bias=True, drop_path_rate=0.0))))
family(W, "dinov2")(lambda: vision(t.Dinov2ForImageClassification(t.Dinov2Config(**VISION, drop_path_rate=0.0))))
family(W, "swin")(lambda: vision(t.SwinForImageClassification(t.SwinConfig(
    image_size=32, patch_size=2, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4, drop_path_rate=0.0,
    num_labels=10))))
family(W, "swinv2")(lambda: vision(t.Swinv2ForImageClassification(t.Swinv2Config(
    image_size=32, patch_size=2, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4, drop_path_rate=0.0,
    num_labels=10))))
family(W, "poolformer")(lambda: vision(t.PoolFormerForImageClassification(t.PoolFormerConfig(
    depths=[1, 1, 1, 1], hidden_sizes=[8, 16, 24, 32], drop_path_rate=0.0, num_labels=10)), 64))
family(W, "mobilevit")(lambda: vision(t.MobileViTForImageClassification(t.MobileViTConfig(
    image_size=64, hidden_sizes=[16, 20, 24], neck_hidden_sizes=[8, 8, 16, 16, 24, 24, 32], num_attention_heads=2,
    num_labels=10)), 64, optimizer="sgd:lr=0.01,momentum=0.9"))


@family("segmentation")
def segformer():
    config = t.SegformerConfig(num_encoder_blocks=2, depths=[1, 1], sr_ratios=[2, 1], hidden_sizes=[16, 32],
                               patch_sizes=[7, 3], strides=[4, 2], num_attention_heads=[2, 4], mlp_ratios=[2, 2],
                               decoder_hidden_size=16, drop_path_rate=0.0, num_labels=5)
    x = random().standard_normal((ROWS, 3, 32, 32)).astype(np.float32)
    labels = random(2).integers(0, 5, (ROWS, 8, 8)).astype(np.int64)
    labels[:, :2] = -100
    return Case(Logits(t.SegformerForSemanticSegmentation(config), ["pixel_values"]), {"pixel_values": x},
                {"labels": labels})


@family("images and text")
def clip():
    config = t.CLIPConfig(
        text_config=dict(vocab_size=V, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
                         max_position_embeddings=T, bos_token_id=0, eos_token_id=V - 1, pad_token_id=1),
        vision_config={k: v for k, v in VISION.items() if k != "num_labels"}, projection_dim=16)
    x, _ = images((3, 32, 32), 4)
    ids = tokens(T, V - 1)
    ids[:, -1] = V - 1
    inputs = {"input_ids": ids, "pixel_values": x, "attention_mask": np.ones((ROWS, T), np.int64)}
    # The images of a microbatch against its texts: the label of row i is i.
    return Case(Logits(t.CLIPModel(config), list(inputs), take="logits_per_image"), inputs,
                {"labels": (np.arange(ROWS) % 4).astype(np.int64)})
