"""A wrong configuration names the field that is wrong."""

import json

import pytest

from khot.vision import NetworkConfig, from_config, preset, preset_names


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"model": "resnet"}, "model must be 'topk_attention', 'topk_dynamic' or 'vit', got 'resnet'"),
        ({"widht": 3}, "no field 'widht'; there are model, image_size"),
        ({"width": 0}, "width must be a positive integer, got 0"),
        ({"depth": True}, "depth must be a positive integer, got True"),
        ({"classes": "ten"}, "classes must be a positive integer, got 'ten'"),
        ({"image_size": [224]}, r"image_size must be one or two positive integers, got \[224\]"),
        ({"patch_size": 1.5}, r"patch_size must be one or two positive integers, got 1.5"),
        ({"patch_size": 15}, r"patch_size \(15, 15\) must divide image_size \(224, 224\)"),
        ({"width": 190}, "heads must divide 190, got 4"),
        ({"k": 197}, "k must be at most the 196 patches, got 197"),
        ({"dropout": 1.0}, r"dropout must be a number in \[0, 1\), got 1.0"),
        ({"dropout": "0"}, r"dropout must be a number in \[0, 1\), got '0'"),
        ({"temperature": 0}, "temperature must be a number > 0 that float32 holds, got 0"),
        ({"temperature": 1e-50}, "temperature must be a number > 0 that float32 holds, got 1e-50"),
        ({"temperature": 1e39}, r"temperature must be a number > 0 that float32 holds, got 1e\+39"),
        ({"mlp_ratio": float("nan")}, r"mlp_ratio must be a number in \(0, 2⁶⁴\), got nan"),
        ({"mlp_ratio": 1e308}, r"mlp_ratio must be a number in \(0, 2⁶⁴\), got 1e\+308"),
        ({"method": "softrnak"}, "unknown method 'softrnak'; known methods: "),
        ({"method": "gumbel"}, "method must have rows and no noise, 'gumbel' has not"),
        ({"model": "topk_dynamic", "mlp_ratio": 0.5}, "mlp_ratio is too small for the dynamic model"),
    ],
)
def test_the_wrong_field_is_named(fields, message):
    with pytest.raises(ValueError, match=f"NetworkConfig: {message}"):
        NetworkConfig.from_dict(fields)


def test_json_gives_back_the_configuration(tmp_path):
    config = NetworkConfig(model="vit", image_size=(8, 16), patch_size=4, k=2, dropout=0.1)
    (tmp_path / "a.json").write_text(json.dumps(config.to_dict()))
    assert NetworkConfig.from_json(tmp_path / "a.json") == config
    (tmp_path / "b.json").write_text("[1]")
    with pytest.raises(ValueError, match=r"b.json must hold an object, got list"):
        NetworkConfig.from_json(tmp_path / "b.json")
    (tmp_path / "c.json").write_text("{")
    with pytest.raises(ValueError, match=r"c.json is not JSON"):
        NetworkConfig.from_json(tmp_path / "c.json")


@pytest.mark.parametrize("name", preset_names())
def test_the_three_models_of_a_preset_are_of_equal_size(name):
    sizes = [
        sum(parameter.numel() for parameter in from_config(preset(name, model=model)).parameters())
        for model in ("vit", "topk_attention", "topk_dynamic")
    ]
    assert max(sizes) / min(sizes) < 1.005


def test_presets_take_changes_and_refuse_other_names():
    assert preset("mnist", depth=2).depth == 2
    with pytest.raises(
        ValueError, match="name must be 'digits', 'mnist', 'imagenet-tiny' or 'imagenet-small'"
    ):
        preset("cifar")
