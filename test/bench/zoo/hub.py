"""Further families of transformers, most of them a row: decoders, encoders, encoder-decoders, images, time series."""
import numpy as np
import transformers as t

from case import ROWS, Case, Logits, classes, family, images, padding, random, tokens
from language import COMMON, ENCODER, SEQ2SEQ, T, V, VISION, D, E, S, W, decoder, encoder, translator, vision


def causal(name, config, mask=False, **more):
    """A decoder with COMMON's shape and what its configuration has of its own."""
    family(D, name.lower())(lambda: decoder(getattr(t, config.replace("Config", "ForCausalLM"))(
        getattr(t, config)(**{**COMMON, **more})), mask))


GROUPED = dict(num_key_value_heads=2)
EXPERTS = dict(num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=2, experts_implementation="eager")
causal("cohere", "CohereConfig", **GROUPED, logit_scale=0.5)
causal("cohere2", "Cohere2Config", **GROUPED, sliding_window=6, layer_types=["sliding_attention", "full_attention"])
causal("olmo", "OlmoConfig", True, **GROUPED)
causal("olmo3", "Olmo3Config", **GROUPED, sliding_window=6, layer_types=["sliding_attention", "full_attention"])
causal("granite", "GraniteConfig", True, **GROUPED, residual_multiplier=0.5, embedding_multiplier=2.0)
causal("glm", "GlmConfig", **GROUPED, head_dim=8)
causal("glm4", "Glm4Config", **GROUPED, head_dim=8)
causal("smollm3", "SmolLM3Config", **GROUPED)
causal("nemotron", "NemotronConfig", True, **GROUPED)
causal("persimmon", "PersimmonConfig", True)
causal("helium", "HeliumConfig", **GROUPED, head_dim=8)
causal("exaone4", "Exaone4Config", **GROUPED, sliding_window=None, layer_types=["full_attention", "full_attention"])
causal("mixtral", "MixtralConfig", **EXPERTS)
causal("diffllama", "DiffLlamaConfig", True, **GROUPED)
causal("apertus", "ApertusConfig", **GROUPED)
causal("arcee", "ArceeConfig", **GROUPED)
causal("seed-oss", "SeedOssConfig", **GROUPED, head_dim=8)
causal("ernie4-5", "Ernie4_5Config", **GROUPED)
causal("ministral", "MinistralConfig", **GROUPED, sliding_window=6, rope_theta=10000.0, head_dim=8)
causal("bitnet", "BitNetConfig", **GROUPED)
causal("lfm2", "Lfm2Config", **GROUPED, layer_types=["conv", "full_attention"])
causal("qwen2-moe", "Qwen2MoeConfig", **GROUPED, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16,
       shared_expert_intermediate_size=16, experts_implementation="eager")
causal("qwen3-moe", "Qwen3MoeConfig", **GROUPED, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16,
       head_dim=8, experts_implementation="eager")
causal("biogpt", "BioGptConfig", True)
causal("xglm", "XGLMConfig", True, d_model=32, num_layers=2, attention_heads=4, ffn_dim=64)
causal("mamba", "MambaConfig", state_size=4, expand=2, conv_kernel=3, time_step_rank=4, use_mambapy=False)
causal("mamba2", "Mamba2Config", state_size=8, head_dim=16, num_heads=4, n_groups=1, chunk_size=8, expand=2)
GPT = dict(vocab_size=V, n_embd=32, n_layer=2, n_head=4, n_positions=32, bos_token_id=0, eos_token_id=1,
           tie_word_embeddings=False)
family(D, "gpt-bigcode")(lambda: decoder(t.GPTBigCodeForCausalLM(t.GPTBigCodeConfig(**GPT)), True))
family(D, "codegen")(lambda: decoder(t.CodeGenForCausalLM(t.CodeGenConfig(**GPT, rotary_dim=4)), True))
family(D, "openai-gpt")(lambda: decoder(t.OpenAIGPTLMHeadModel(t.OpenAIGPTConfig(**{**GPT, "tie_word_embeddings": True}))))
family(D, "ctrl")(lambda: decoder(t.CTRLLMHeadModel(t.CTRLConfig(
    vocab_size=V, n_embd=32, n_layer=2, n_head=4, n_positions=32, dff=64, tie_word_embeddings=False))))
family(D, "mpt")(lambda: decoder(t.MptForCausalLM(t.MptConfig(
    d_model=32, n_heads=4, n_layers=2, vocab_size=V, max_seq_len=32, expansion_ratio=2, tie_word_embeddings=False)), True))
family(D, "falcon-alibi")(lambda: decoder(t.FalconForCausalLM(t.FalconConfig(
    vocab_size=V, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, bos_token_id=0, eos_token_id=1,
    alibi=True, new_decoder_architecture=False, multi_query=False, parallel_attn=False,
    tie_word_embeddings=False)), True))
family(D, "deepseek-v3")(lambda: decoder(t.DeepseekV3ForCausalLM(t.DeepseekV3Config(
    **{**COMMON, "num_key_value_heads": 4}, kv_lora_rank=8, q_lora_rank=12, qk_rope_head_dim=4, qk_nope_head_dim=4,
    v_head_dim=8, n_routed_experts=4, n_group=1, topk_group=1, num_experts_per_tok=2, moe_intermediate_size=16,
    first_k_dense_replace=2))))


def classifier(name, config, segments=False, **more):
    family(E, name)(lambda: encoder(getattr(t, config.replace("Config", "ForSequenceClassification"))(
        getattr(t, config)(**{**ENCODER, **more})), segments=segments))


classifier("squeezebert", "SqueezeBertConfig", True, embedding_size=32, q_groups=2, k_groups=2, v_groups=2)
classifier("camembert", "CamembertConfig", pad_token_id=1)
classifier("xlm-roberta", "XLMRobertaConfig", pad_token_id=1)
classifier("xlm-roberta-xl", "XLMRobertaXLConfig", pad_token_id=1)
classifier("roberta-prelayernorm", "RobertaPreLayerNormConfig", pad_token_id=1)
classifier("ernie", "ErnieConfig", True)
classifier("layoutlm", "LayoutLMConfig", True)
classifier("convbert", "ConvBertConfig", True, embedding_size=32, conv_kernel_size=3, head_ratio=2)
classifier("fnet", "FNetConfig", type_vocab_size=2, tpu_short_seq_length=T)
classifier("mobilebert", "MobileBertConfig", True, embedding_size=16, intra_bottleneck_size=16, true_hidden_size=16)
classifier("megatron-bert", "MegatronBertConfig", True)
classifier("rembert", "RemBertConfig", True, input_embedding_size=16, output_embedding_size=16)
classifier("roformer", "RoFormerConfig", True, embedding_size=16, rotary_value=True)
classifier("ibert", "IBertConfig", pad_token_id=1, quant_mode=False)
classifier("deberta", "DebertaConfig", relative_attention=True, pos_att_type=["c2p", "p2c"], pooler_hidden_size=32)
classifier("esm", "EsmConfig", pad_token_id=1, position_embedding_type="rotary", mask_token_id=4)
classifier("longformer", "LongformerConfig", attention_window=[4, 4])
classifier("big-bird", "BigBirdConfig", attention_type="original_full")
classifier("yoso", "YosoConfig", use_expectation=True, use_conv=False)
family(E, "xlnet")(lambda: encoder(t.XLNetForSequenceClassification(t.XLNetConfig(
    vocab_size=V, d_model=32, n_layer=2, n_head=4, d_inner=64, num_labels=4))))
family(E, "flaubert")(lambda: encoder(t.FlaubertForSequenceClassification(t.FlaubertConfig(
    vocab_size=V, emb_dim=32, n_layers=2, n_heads=4, max_position_embeddings=32, num_labels=4))))
family(E, "funnel")(lambda: encoder(t.FunnelForSequenceClassification(t.FunnelConfig(
    vocab_size=V, block_sizes=[1, 1], d_model=32, n_head=4, d_head=8, d_inner=64, num_decoder_layers=1, num_labels=4))))
family(E, "perceiver")(lambda: encoder(t.PerceiverForSequenceClassification(t.PerceiverConfig(
    vocab_size=V, num_latents=4, d_latents=32, d_model=32, num_blocks=1, num_self_attends_per_block=2,
    num_self_attention_heads=4, num_cross_attention_heads=4, max_position_embeddings=T, num_labels=4))))
family(E, "canine")(lambda: encoder(t.CanineForSequenceClassification(t.CanineConfig(
    **{k: v for k, v in ENCODER.items() if k != "vocab_size"}, num_hash_functions=2, num_hash_buckets=32,
    downsampling_rate=4, local_transformer_stride=8))))
family(E, "token-classification")(lambda: tagger(t.BertForTokenClassification(t.BertConfig(**ENCODER))))


def tagger(model):
    made = encoder(model)
    made.labels = {"labels": np.where(made.inputs["attention_mask"] > 0, made.inputs["input_ids"] % 4, -100)}
    return made


family(S, "mt5")(lambda: translator(t.MT5ForConditionalGeneration(t.MT5Config(
    vocab_size=V, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, relative_attention_num_buckets=8,
    relative_attention_max_distance=12, decoder_start_token_id=0))))
family(S, "umt5")(lambda: translator(t.UMT5ForConditionalGeneration(t.UMT5Config(
    vocab_size=V, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, relative_attention_num_buckets=8,
    relative_attention_max_distance=12, decoder_start_token_id=0))))
for name, kind in (("m2m100", "M2M100"), ("mbart", "MBart"), ("blenderbot", "Blenderbot"), ("plbart", "PLBart"),
                   ("mvp", "Mvp"), ("pegasus-x", "PegasusX")):
    family(S, name)(lambda kind=kind: translator(
        getattr(t, kind + "ForConditionalGeneration")(getattr(t, kind + "Config")(**SEQ2SEQ))))
family(S, "longt5")(lambda: translator(t.LongT5ForConditionalGeneration(t.LongT5Config(
    vocab_size=V, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, relative_attention_num_buckets=8, local_radius=3,
    relative_attention_max_distance=12, decoder_start_token_id=0))))


# Sound.

def waves(model, length=400):
    labels = classes(5)
    wave = np.sin(np.arange(length)[None] * 0.02 * (labels[:, None] + 1)) + 0.1 * random().standard_normal((ROWS, length))
    return Case(Logits(model, ["input_values"]), {"input_values": wave.astype(np.float32)}, {"labels": labels})


SOUND = dict(vocab_size=V, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
             conv_dim=(16, 16, 16), conv_stride=(5, 2, 2), conv_kernel=(10, 3, 3), num_feat_extract_layers=3,
             num_conv_pos_embeddings=8, num_conv_pos_embedding_groups=4, layerdrop=0.0, mask_time_prob=0.0,
             classifier_proj_size=16, num_labels=5, mask_feature_prob=0.0)
for name, kind in (("hubert", "Hubert"), ("wavlm", "WavLM"), ("unispeech", "UniSpeech"), ("sew", "SEW"),
                   ("data2vec-audio", "Data2VecAudio")):
    family("audio", name)(lambda kind=kind: waves(getattr(t, kind + "ForSequenceClassification")(
        getattr(t, kind + "Config")(**SOUND))))


@family("audio")
def spectrogram_transformer():
    config = t.ASTConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, patch_size=4,
                         frequency_stride=4, time_stride=4, max_length=16, num_mel_bins=16, num_labels=5)
    x = random().standard_normal((ROWS, 16, 16)).astype(np.float32)
    return Case(Logits(t.ASTForAudioClassification(config), ["input_values"]), {"input_values": x}, {"labels": classes(5)})


# Images.

SLOW = dict(optimizer="sgd:lr=0.01,momentum=0.9")
PIC = "convolutional"
family(W, "vit-msn")(lambda: vision(t.ViTMSNForImageClassification(t.ViTMSNConfig(**VISION))))
family(W, "dinov2-registers")(lambda: vision(t.Dinov2WithRegistersForImageClassification(
    t.Dinov2WithRegistersConfig(**VISION, num_register_tokens=2, drop_path_rate=0.0))))
family(W, "siglip")(lambda: vision(t.SiglipForImageClassification(t.SiglipConfig(
    vision_config={k: v for k, v in VISION.items() if k != "num_labels"}, num_labels=10))))
family(W, "pvt")(lambda: vision(t.PvtForImageClassification(t.PvtConfig(
    image_size=32, num_encoder_blocks=2, depths=[1, 1], sequence_reduction_ratios=[2, 1], hidden_sizes=[16, 32],
    patch_sizes=[4, 2], strides=[4, 2], num_attention_heads=[1, 2], mlp_ratios=[2, 2], num_labels=10))))
family(W, "pvt-v2")(lambda: vision(t.PvtV2ForImageClassification(t.PvtV2Config(
    image_size=32, num_encoder_blocks=2, depths=[1, 1], sr_ratios=[2, 1], hidden_sizes=[16, 32],
    patch_sizes=[7, 3], strides=[4, 2], num_attention_heads=[1, 2], mlp_ratios=[2, 2], num_labels=10))))
family(W, "cvt")(lambda: vision(t.CvtForImageClassification(t.CvtConfig(
    embed_dim=[16, 32, 32], num_heads=[1, 2, 2], depth=[1, 1, 1], mlp_ratio=[2.0] * 3, attention_drop_rate=[0.0] * 3,
    drop_rate=[0.0] * 3, drop_path_rate=[0.0] * 3, num_labels=10)), **SLOW))
family(W, "levit")(lambda: vision(t.LevitForImageClassification(t.LevitConfig(
    image_size=64, hidden_sizes=[16, 24, 32], num_attention_heads=[2, 2, 2], depths=[1, 1, 1], key_dim=[8, 8, 8],
    mlp_ratio=[2, 2, 2], attention_ratio=[2, 2, 2], drop_path_rate=0, num_labels=10)), 64, **SLOW))
family(W, "focalnet")(lambda: vision(t.FocalNetForImageClassification(t.FocalNetConfig(
    image_size=32, patch_size=4, embed_dim=16, depths=[1, 1], focal_levels=[2, 2], focal_windows=[3, 3],
    drop_path_rate=0.0, num_labels=10))))
family(W, "mobilevit-v2")(lambda: vision(t.MobileViTV2ForImageClassification(t.MobileViTV2Config(
    image_size=64, width_multiplier=0.25, num_labels=10)), 64, **SLOW))
family(W, "swiftformer")(lambda: vision(t.SwiftFormerForImageClassification(t.SwiftFormerConfig(
    image_size=64, depths=[1, 1, 1, 1], embed_dims=[8, 16, 24, 32], mlp_ratio=2, drop_path_rate=0.0,
    num_labels=10)), 64, **SLOW))
family(W, "hiera")(lambda: vision(t.HieraForImageClassification(t.HieraConfig(
    image_size=[32, 32], patch_size=[3, 3], patch_stride=[2, 2], patch_padding=[1, 1], embed_dim=16, depths=[1, 1, 1, 1],
    num_heads=[1, 2, 4, 8], mlp_ratio=2.0, masked_unit_size=[8, 8], query_stride=[2, 2], num_query_pool=2,
    drop_path_rate=0.0, num_labels=10))))
family(PIC, "convnext-v2")(lambda: vision(t.ConvNextV2ForImageClassification(t.ConvNextV2Config(
    image_size=32, depths=[1, 1, 1, 1], hidden_sizes=[8, 16, 24, 32], patch_size=2, drop_path_rate=0.0, num_labels=10))))
family(PIC, "mobilenet-v1")(lambda: vision(t.MobileNetV1ForImageClassification(t.MobileNetV1Config(
    image_size=64, depth_multiplier=0.25, min_depth=4, num_labels=10)), 64, **SLOW))
family(PIC, "bit")(lambda: vision(t.BitForImageClassification(t.BitConfig(
    embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1], num_groups=4, layer_type="preactivation", num_labels=10)),
    32, **SLOW))
family(PIC, "resnet-d")(lambda: vision(t.ResNetForImageClassification(t.ResNetConfig(
    embedding_size=8, hidden_sizes=[16, 32], depths=[1, 1], layer_type="basic", num_labels=10)), 32, **SLOW))
family(PIC, "hgnet-v2")(lambda: vision(t.HGNetV2ForImageClassification(t.HGNetV2Config(
    stem_channels=[3, 8, 8], stage_in_channels=[8, 16], stage_mid_channels=[8, 8], stage_out_channels=[16, 24],
    stage_num_blocks=[1, 1], stage_downsample=[False, True], stage_light_block=[False, True],
    stage_kernel_size=[3, 5], stage_numb_of_layers=[2, 2], depths=[1, 1], hidden_sizes=[16, 24], embedding_size=8,
    num_labels=10)), 32, **SLOW))


def pixels(model, take, target, size=32):
    x, _ = images((3, size, size), 4)
    return Case(Logits(model, ["pixel_values"], take=take), {"pixel_values": x}, {"targets": target}, loss="mse",
                **SLOW)


def noise(*shape):
    return random(9).standard_normal((ROWS, *shape)).astype(np.float32)


BACKBONE = {k: v for k, v in VISION.items() if k != "num_labels"}
family("detection", "yolos")(lambda: pixels(t.YolosForObjectDetection(t.YolosConfig(
    **{**BACKBONE, "image_size": [32, 32]}, num_detection_tokens=5, use_mid_position_embeddings=False, num_labels=4)),
    "pred_boxes", np.abs(noise(5, 4)) / 4))
family("detection", "detr")(lambda: pixels(t.DetrForObjectDetection(t.DetrConfig(
    use_timm_backbone=False, use_pretrained_backbone=False, backbone=None, backbone_config=t.ResNetConfig(
        embedding_size=8, hidden_sizes=[16, 32], depths=[1, 1], layer_type="basic", out_features=["stage2"]),
    d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=4, decoder_attention_heads=4,
    encoder_ffn_dim=64, decoder_ffn_dim=64, num_queries=5, num_labels=4)), "pred_boxes", np.abs(noise(5, 4)) / 4))
family("dense outputs", "swin2sr")(lambda: pixels(t.Swin2SRForImageSuperResolution(t.Swin2SRConfig(
    image_size=16, embed_dim=16, depths=[2], num_heads=[2], window_size=4, upscale=2, drop_path_rate=0.0)),
    "reconstruction", noise(3, 32, 32), 16))
family("dense outputs", "depth")(lambda: pixels(t.GLPNForDepthEstimation(t.GLPNConfig(
    num_encoder_blocks=4, depths=[1, 1, 1, 1], sr_ratios=[4, 2, 1, 1], hidden_sizes=[8, 16, 24, 32],
    patch_sizes=[7, 3, 3, 3], strides=[4, 2, 2, 2], num_attention_heads=[1, 2, 2, 4], mlp_ratios=[2, 2, 2, 2],
    decoder_hidden_size=16, drop_path_rate=0.0)), "predicted_depth", noise(64, 64), 64))
family("dense outputs", "dpt")(lambda: pixels(t.DPTForDepthEstimation(t.DPTConfig(
    **{**BACKBONE, "num_hidden_layers": 4}, backbone_out_indices=[0, 1, 2, 3], neck_hidden_sizes=[8, 8, 16, 16],
    fusion_hidden_size=16, is_hybrid=False)), "predicted_depth", noise(64, 64)))


# Time series.

def series(model, take, target, **inputs):
    return Case(Logits(model, list(inputs), take=take), inputs, {"targets": target}, loss="mse", **SLOW)


family("time series", "patch-tst")(lambda: series(t.PatchTSTForPrediction(t.PatchTSTConfig(
    num_input_channels=2, context_length=32, patch_length=8, patch_stride=8, prediction_length=8, d_model=16,
    num_hidden_layers=2, num_attention_heads=4, ffn_dim=32, loss="mse", scaling="std")), "prediction_outputs",
    noise(8, 2), past_values=noise(32, 2)))
family("time series", "patch-mixer")(lambda: series(t.PatchTSMixerForPrediction(t.PatchTSMixerConfig(
    num_input_channels=2, context_length=32, patch_length=8, patch_stride=8, prediction_length=8, d_model=16,
    num_layers=2, loss="mse", scaling="std")), "prediction_outputs", noise(8, 2), past_values=noise(32, 2)))
