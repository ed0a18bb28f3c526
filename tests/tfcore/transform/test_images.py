"""Images to pixels: one decoding for training and serving, and what happens to a file that TensorFlow refuses."""

import io

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
from PIL import Image, ImageOps

from headway.errors import ConfigError, DataError
from headway.schema.columns import Column
from headway.statistics.split_statistics import SplitStatistics
from tests.example_shards import dataset_of, write_examples
from tfcore.data.dataset import evaluation_dataset
from tfcore.data.reader import Labeler, Shards, with_data_errors
from tfcore.graph.python_op import python_errors
from tfcore.transform.config import ColumnTransform
from tfcore.transform.fit import fit_parameters
from tfcore.transform.images import ImageDecoder, decode_images

pytestmark = pytest.mark.long
PHOTO = Column(name="photo", type="bytes", nullable=True)
LABEL = Column(name="label", type="int64", nullable=False, role="label")
PIXELS = (8, 6, 3)
BROKEN = b"\xff\xd8\xff\xe0 cut off"


def image(seed, format="PNG", mode="RGB", size=(20, 16)):
    shape = (size[1], size[0], 3) if mode == "RGB" else (size[1], size[0])
    pixels = np.random.default_rng(seed).integers(0, 255, shape).astype(np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels, mode).save(out, format)
    return out.getvalue()


def test_tolerant_gives_the_pixels_that_the_exported_graph_gives():
    sizes = [(6, 8), (8, 6), (3, 40), (1, 1)]  # as they are wanted, and smaller
    more = [image(seed, size=size) for seed, size in enumerate(sizes, 4)]
    files = tf.constant([image(0), image(1, "JPEG"), image(2, mode="L"), b"", *more])
    present = tf.constant([True, True, True, False] + [True] * len(more))
    exported = tf.function(lambda f, p: decode_images(f, p, PIXELS), autograph=False)(files, present)
    found, usable = tf.function(lambda f, p: ImageDecoder(0)(f, p, PIXELS), autograph=False)(files, present)
    np.testing.assert_array_equal(exported, found)
    assert exported.shape == (8, *PIXELS) and exported.dtype == tf.uint8 and usable.numpy().all()
    assert not exported[3].numpy().any() and exported[0].numpy().any()


@pytest.mark.parametrize("format", ["JPEG", "PNG"])
@pytest.mark.parametrize("order", ["<", ">"])
def test_images_are_turned_as_their_orientation_says(format, order):
    files, wanted = [], []
    pixels = np.zeros((16, 24, 3), np.uint8)
    pixels[:8, :16], pixels[8:, :8] = 255, 128  # no two orientations look alike
    for orientation in (*range(1, 9), 0, 9):
        exif = Image.Exif()
        exif.endian = order
        exif[0x010F], exif[0x0112] = "maker", orientation
        out = io.BytesIO()
        Image.fromarray(pixels).save(out, format, exif=exif, **({"quality": 100} if format == "JPEG" else {}))
        files.append(out.getvalue())
        upright = ImageOps.exif_transpose(Image.open(io.BytesIO(files[-1])))
        wanted.append(np.asarray(upright.convert("RGB")))
    for file, image in zip(files, wanted, strict=True):
        found = decode_images(tf.constant([file]), None, (*image.shape[:2], 3)).numpy()[0]
        np.testing.assert_allclose(found.astype(int), image.astype(int), atol=8)
    # as soon as a file is upright, its size is that of the others
    (found, usable) = ImageDecoder(0)(tf.constant(files), None, (16, 24, 3))
    assert found.shape == (10, 16, 24, 3) and usable.numpy().all()


@pytest.mark.parametrize(
    "tail", [b"", b"II", b"II*\0", b"II*\0\xff\xff\xff\xff", b"II*\0\x08\0\0\0\xff\xff\x12\x01", b"no TIFF"]
)
def test_a_broken_orientation_is_none(tail):
    file = image(5, "JPEG", size=(6, 8))
    segment = b"Exif\0\0" + tail
    broken = file[:2] + b"\xff\xe1" + (len(segment) + 2).to_bytes(2, "big") + segment + file[2:]
    found = decode_images(tf.constant([broken, file]), None, (8, 6, 3)).numpy()
    np.testing.assert_array_equal(found[0], found[1])


def test_grey_pixels_of_one_size_are_pillow_s():
    file = image(3, mode="L", size=(6, 8))
    found = decode_images(tf.constant([file]), None, (8, 6, 1)).numpy()[0, :, :, 0]
    np.testing.assert_array_equal(found, np.asarray(Image.open(io.BytesIO(file))))


def test_a_refused_image_is_counted_and_too_many_are_an_error():
    tolerant = ImageDecoder(200)
    files = tf.constant([image(0), BROKEN, BROKEN])
    found, usable = tolerant(files, None, PIXELS)
    assert usable.numpy().tolist() == [True, False, False] and tolerant.refused == 2
    assert not found[1].numpy().any()
    with (
        pytest.raises(DataError, match="refused 4 images, more than 1% of them: jpeg::Uncompress failed"),
        python_errors(),
    ):
        tf.function(lambda f: tolerant(f, None, PIXELS), autograph=False)(files)
    tolerant.seen = 500  # of later epochs
    tolerant(tf.constant([BROKEN]), None, PIXELS)
    assert tolerant.refused == 5


def raw(*values):
    return [np.full(PIXELS, value, np.uint8).tobytes() for value in values]


def test_raw_pixels_are_taken_as_they_are():
    pixels = np.arange(2 * 8 * 6 * 3, dtype=np.uint16).astype(np.uint8).reshape(2, *PIXELS)
    files = tf.constant([pixels[0].tobytes(), b"", pixels[1].tobytes()])
    decode = tf.function(lambda f, p: decode_images(f, p, PIXELS, raw=True), autograph=False)
    found = decode(files, tf.constant([True, False, True])).numpy()
    np.testing.assert_array_equal(found, [pixels[0], np.zeros(PIXELS), pixels[1]])
    with pytest.raises(tf.errors.InvalidArgumentError, match="raw pixels have 144 bytes"):
        decode(files, tf.constant([True, True, True]))
    found, usable = ImageDecoder(100)(files, None, PIXELS, raw=True)
    np.testing.assert_array_equal(found, [pixels[0], np.zeros(PIXELS), pixels[1]])
    assert usable.numpy().tolist() == [True, False, True]
    with pytest.raises(DataError, match=r"a value has 0 bytes, not the 144 of 8 x 6 x 3"), python_errors():
        ImageDecoder(0)(files, None, PIXELS, raw=True)


@pytest.mark.parametrize(
    ("encoding", "photos", "is_raw"),
    [
        ("auto", raw(1, 2), True),
        ("auto", [*raw(1, 2), None], True),
        ("auto", [*raw(1), b"longer" * 40], False),
        ("file", raw(1, 2), False),
        ("raw", [*raw(1), b"longer" * 40], True),
    ],
)
def test_values_of_the_pixels_size_are_raw_unless_the_pipeline_says_else(tmp_path, encoding, photos, is_raw):
    image = {"image": {"height": 8, "width": 6, "encoding": encoding}}
    found = written(tmp_path, photos).fit({"photo": ColumnTransform(transform=image)}, "binary")
    assert found.fitted[0].ops[-1].raw == is_raw


def written(tmp_path, photos):
    table = pa.table(
        {"photo": pa.array(photos, pa.binary()), "label": pa.array([i % 2 for i in range(len(photos))], pa.int64())}
    )
    return write_examples(tmp_path, {"train": table}, (PHOTO, LABEL), rows_per_record=4, shards=1)


def test_refused_and_missing_images_on_the_way_to_a_model(tmp_path):
    from tfcore.transform.layer import Transform

    photos = [image(i) for i in range(6)] + [BROKEN, None]
    found = written(tmp_path, photos)
    parameters = found.fit({"photo": ColumnTransform(transform={"image": {"height": 8, "width": 6}})}, "binary")
    assert parameters.inputs()["image_photo"] == (PIXELS, "uint8")
    assert parameters.numeric == ("photo__missing",)
    shards = Shards.of([(found.folder, found.result, "train")])
    tolerant = ImageDecoder(1000)
    labeler, transform = Labeler(parameters.label), Transform(parameters, tolerant=tolerant)
    (batch,) = list(with_data_errors(evaluation_dataset(shards, transform, labeler, batch=8), shards))
    assert "usable" not in batch and batch["image_photo"].shape == (8, *PIXELS)
    assert batch["weight"].numpy().tolist() == [1, 1, 1, 1, 1, 1, 0, 1]
    assert batch["numeric"].numpy()[:, 0].tolist() == [0, 0, 0, 0, 0, 0, 0, 1]
    stack = next(iter(dataset_of(shards, transform, labeler, seed=0, batch=4, stack=2)))
    assert stack["image_photo"].shape == (2, 4, *PIXELS) and stack["weight"].numpy().sum() == 7
    strict = Transform(parameters, tolerant=ImageDecoder(0))
    with pytest.raises(DataError, match=r"images: TensorFlow refused 1 image, more than 1% of them"):
        list(with_data_errors(evaluation_dataset(shards, strict, labeler, batch=8), shards))


def test_long_values_are_compared_whole_but_not_kept():
    statistics = SplitStatistics.create((PHOTO, LABEL))
    photos = [bytes([i]) * 5000 for i in range(50)] * 2 + [b"short", None]
    batch = pa.RecordBatch.from_pydict({"photo": pa.array(photos, pa.binary()), "label": pa.array([0, 1] * 51)})
    statistics.update(batch)
    column = statistics.columns["photo"]
    assert not column.complete and column.text is None and column.distinct == 51
    assert (column.missing, column.longest, column.shortest) == (1, 5000, 5)
    number = Column(name="x", type="int64", nullable=False)
    x = SplitStatistics.create((number,))
    x.update(pa.RecordBatch.from_pydict({"x": pa.array(range(102))}))
    statistics.columns["x"] = x.columns["x"]
    parameters, notes = fit_parameters((PHOTO, LABEL, number), {}, statistics)
    assert "an image needs its size" in notes[0].text and [f.column.name for f in parameters.fitted] == ["x"]
    with pytest.raises(ConfigError, match="too long for words"):
        fit_parameters((PHOTO, LABEL), {"photo": ColumnTransform(transform="vocabulary")}, statistics)
