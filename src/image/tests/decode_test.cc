#include "image/codecs/decode.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

#include "base/sha256.h"
#include "image/tests/support.h"

namespace tern::image {
namespace {

const char* outcome_of(const Expected<Image>& image) {
  if (image.ok()) return "ok";
  switch (image.error().code) {
    case ErrorCode::kCorrupt:
      return "corrupt";
    case ErrorCode::kTooLarge:
      return "too_large";
    case ErrorCode::kUnsupported:
      return "unsupported";
    default:
      return "other";
  }
}

void expect_decodes(const std::filesystem::path& folder, const std::filesystem::path& table, size_t least) {
  const auto rows = read_table(table, "decode");
  ASSERT_GE(rows.size(), least);
  for (const Row& row : rows) {
    SCOPED_TRACE(row[1]);
    const auto file = read_file(folder / row[1]);
    ASSERT_FALSE(file.empty());
    auto image = decode_image(file, {});
    if (!image.ok()) {
      ADD_FAILURE() << image.error().message;
      continue;
    }
    EXPECT_EQ(mode_name(image->mode()), row[2]);
    EXPECT_EQ(std::to_string(image->width()), row[3]);
    EXPECT_EQ(std::to_string(image->height()), row[4]);
    if (row[5] != "-") {
      EXPECT_EQ(sha256_hex(image->data(), image->size_bytes()), row[5]) << "in its own mode";
    }
    const auto rgb = convert_rgb(std::move(*image));
    ASSERT_TRUE(rgb.ok());
    EXPECT_EQ(rgb->mode(), Mode::kRGB);
    EXPECT_EQ(sha256_hex(rgb->data(), rgb->size_bytes()), row[6]) << "as RGB";
  }
}

TEST(Decode, EqualsPillowOnOwnPictures) { expect_decodes(data_dir(), data_dir() / "cases.tsv", 100); }

TEST(Decode, EqualsPillowOnRealPictures) {
  const auto folder = shared_dir() / "data/images";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no pictures at " << folder;
  expect_decodes(folder, data_dir() / "shared.tsv", 14);
  for (const Row& row : read_table(data_dir() / "shared.tsv", "refused")) {
    EXPECT_STREQ(outcome_of(decode_image(read_file(folder / row[1]), {})), "corrupt") << row[1];
  }
}

// manifest.json of the real pictures gives hashes made by another decoder, for the lossless ones.
TEST(Decode, EqualsAnotherDecoderOnRealPictures) {
  const auto folder = shared_dir() / "data/images";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no pictures at " << folder;
  const auto bytes = read_file(folder / "manifest.json");
  const std::string text(bytes.begin(), bytes.end());
  const auto value = [&](const std::string& key, size_t from, size_t to) -> std::string {
    const size_t at = text.find("\"" + key + "\": \"", from);
    if (at == std::string::npos || at >= to) return {};
    const size_t start = at + key.size() + 5;
    return text.substr(start, text.find('"', start) - start);
  };
  size_t checked = 0;
  for (size_t at = text.find("\"file\": "); at != std::string::npos;) {
    const size_t next = std::min(text.find("\"file\": ", at + 1), text.size());
    const std::string name = value("file", at, next), hash = value("rgb8_sha256", at, next);
    if (!hash.empty()) {
      auto image = decode_image(read_file(folder / name), {});
      ASSERT_TRUE(image.ok()) << name;
      const auto rgb = convert_rgb(std::move(*image));
      EXPECT_EQ(sha256_hex(rgb->data(), rgb->size_bytes()), hash) << name;
      ++checked;
    }
    at = next < text.size() ? next : std::string::npos;
  }
  EXPECT_GE(checked, 7u);
}

// Who decodes the lower rows: nobody else, somebody else before the upper ones are begun, or meanwhile.
enum class Share { kNone, kBefore, kBeside };
constexpr Share kShares[] = {Share::kNone, Share::kBefore, Share::kBeside};

// Copies what it is told of at once.
class Copier : public RowWatch {
 public:
  explicit Copier(Share share) : share_(share) {}
  ~Copier() override {
    if (thread_.joinable()) thread_.join();
  }
  void begin(const Image& image) override {
    EXPECT_EQ(image_, nullptr);
    image_ = &image;
    copy_.resize(image.size_bytes());
    times_.resize(static_cast<size_t>(image.height()));
  }
  bool share(Task task) override {
    if (share_ == Share::kBeside) thread_ = std::thread(std::move(task));
    if (share_ == Share::kBefore) {
      task();
      shared_ = calls_ > 0;
    }
    return share_ != Share::kNone;
  }
  void rows(int begin, int end) override {
    const std::lock_guard lock(mutex_);
    ASSERT_NE(image_, nullptr);
    ASSERT_FALSE(forgotten_);
    ASSERT_TRUE(0 <= begin && begin < end && end <= image_->height());
    const size_t bytes = image_->row_bytes();
    std::memcpy(&copy_[bytes * static_cast<size_t>(begin)], image_->row(begin),
                bytes * static_cast<size_t>(end - begin));
    for (int y = begin; y < end; ++y) ++times_[static_cast<size_t>(y)];
    ++calls_;
  }
  void forget() override { forgotten_ = true; }

  const Image* image_ = nullptr;
  std::vector<uint8_t> copy_;
  std::vector<int> times_;
  int calls_ = 0;
  bool shared_ = false, forgotten_ = false;

 private:
  const Share share_;
  std::mutex mutex_;
  std::thread thread_;
};

// Every file of the table, in one part and in two: the same picture, and what was told of it is what it is.
TEST(Decode, TellsOfRowsThatStayAsTheyAre) {
  int told = 0, calls = 0, shared = 0;
  for (const Row& row : read_table(data_dir() / "cases.tsv", "decode")) {
    SCOPED_TRACE(row[1]);
    const auto file = read_file(data_dir() / row[1]);
    const auto expected = decode_image(file, {});
    for (const Share share : kShares) {
      Image image;
      Copier copier(share);
      ASSERT_TRUE(decode_image(file, {}, &image, &copier).ok());
      ASSERT_EQ(image.size_bytes(), expected->size_bytes());
      EXPECT_EQ(std::memcmp(image.data(), expected->data(), image.size_bytes()), 0);
      const bool colours = sniff_format(file) == Format::kJpeg && image.mode() == Mode::kRGB;
      EXPECT_EQ(copier.image_ != nullptr, colours);
      if (!colours) continue;
      EXPECT_EQ(copier.image_, &image);
      EXPECT_FALSE(copier.forgotten_);
      EXPECT_EQ(std::memcmp(copier.copy_.data(), image.data(), image.size_bytes()), 0);
      for (const int times : copier.times_) ASSERT_EQ(times, 1);
      ++told, calls += copier.calls_, shared += share == Share::kBefore && copier.shared_ ? 1 : 0;
    }
  }
  EXPECT_GE(told, 30);
  EXPECT_GT(calls, 2 * told);
  EXPECT_GE(shared, 5);
}

// A file that ends early or is damaged ends in two parts as it does in one, wherever that is.
TEST(Decode, DamagedFilesEndAlikeInOnePartAndInTwo) {
  int failed = 0, whole = 0;
  for (const char* name : {"scene_420.jpg", "scene_422.jpg", "scene_444.jpg"}) {
    const auto good = read_file(data_dir() / name);
    for (size_t at = 700; at < good.size(); at += 97) {
      for (const int way : {0, 1, 2, 3}) {
        const bool cut = way / 2 == 0;
        SCOPED_TRACE(std::string(name) + (cut ? " cut at " : " other at ") + std::to_string(at));
        auto file = good;
        if (cut) file.resize(at);
        if (!cut) file[at] ^= 0x5a;
        const auto expected = decode_image(file, {});
        Image image;
        Copier copier(way % 2 == 0 ? Share::kBefore : Share::kBeside);
        const Status got = decode_image(file, {}, &image, &copier);
        ASSERT_EQ(got.ok(), expected.ok());
        if (!got.ok()) {
          EXPECT_EQ(got.error().message, expected.error().message);
          ++failed;
          continue;
        }
        ASSERT_EQ(std::memcmp(image.data(), expected->data(), image.size_bytes()), 0);
        ++whole;
        if (copier.forgotten_) continue;
        EXPECT_EQ(std::memcmp(copier.copy_.data(), image.data(), image.size_bytes()), 0);
      }
    }
  }
  EXPECT_GT(failed, 20);
  EXPECT_GT(whole, 20);
}

TEST(Decode, HostileFilesEndAsTheTableSays) {
  const auto rows = read_table(data_dir() / "hostile.tsv", "hostile");
  ASSERT_GE(rows.size(), 100u);
  for (const Row& row : rows) {
    const auto path = data_dir() / "hostile" / row[1];
    ASSERT_TRUE(std::filesystem::exists(path)) << path;
    const auto image = decode_image(read_file(path), {});
    EXPECT_EQ(outcome_of(image), row[2]) << row[1] << (image.ok() ? "" : ": " + image.error().message);
  }
}

TEST(Decode, ErrorsSayNothingOfTheFile) {
  std::map<std::string, int> texts;
  for (const Row& row : read_table(data_dir() / "hostile.tsv", "hostile")) {
    const auto image = decode_image(read_file(data_dir() / "hostile" / row[1]), {});
    if (!image.ok()) ++texts[image.error().message];
  }
  EXPECT_GE(texts.size(), 5u);
  EXPECT_LE(texts.size(), 9u + 6) << "more texts than there are fixed ones, six of kinds that are named";
  for (const auto& [text, count] : texts) EXPECT_EQ(text.rfind("the picture", 0), 0u) << text;
}

// A file that is cut anywhere ends in an error or, where only what follows the pixels is missing, in the same picture.
TEST(Decode, AnyCutIsAnErrorOrTheWholePicture) {
  for (const char* name : {"odd_420.jpg", "progressive_420.jpg", "palette4_i.png", "rgba16.png", "interlaced.gif",
                           "lossy_alpha.webp", "lossless_palette.webp", "animated.webp", "rgb24.bmp", "rle4.bmp",
                           "rgb_lzw.tif", "ink_g4.tif", "rgb_jpeg.tif", "tiles.tif", "bigtiff.tif"}) {
    SCOPED_TRACE(name);
    const auto file = read_file(data_dir() / name);
    const auto whole = decode_image(file, {});
    ASSERT_TRUE(whole.ok());
    const std::string hash = sha256_hex(whole->data(), whole->size_bytes());
    size_t refused = 0;
    for (size_t size = 0; size < file.size(); ++size) {
      // A copy of exactly that size, so that a read past the end is seen by the sanitizer.
      const std::vector<uint8_t> cut(file.begin(), file.begin() + static_cast<ptrdiff_t>(size));
      const auto image = decode_image(cut, {});
      if (image.ok()) {
        EXPECT_EQ(sha256_hex(image->data(), image->size_bytes()), hash) << size;
      } else {
        ++refused;
      }
    }
    EXPECT_GT(refused, file.size() * 3 / 4);
  }
}

TEST(Decode, LimitsAreCheckedFromTheHeader) {
  const auto file = read_file(data_dir() / "scene.png");  // 97 x 61
  EXPECT_TRUE(decode_image(file, {}).ok());
  DecodeLimits limits;
  limits.bytes = file.size() - 1;
  EXPECT_EQ(decode_image(file, limits).error().message, "the picture's file is larger than the limit");
  limits = {};
  limits.pixels = 97 * 61;
  EXPECT_TRUE(decode_image(file, limits).ok());
  for (const char* name : {"scene.png", "scene_420.jpg", "scene.gif", "lossy.webp", "rgb24.bmp", "rle8.bmp"}) {
    limits = {};
    limits.pixels = 10;
    EXPECT_EQ(outcome_of(decode_image(read_file(data_dir() / name), limits)), std::string("too_large")) << name;
    limits = {};
    limits.side = 5;
    EXPECT_EQ(outcome_of(decode_image(read_file(data_dir() / name), limits)), std::string("too_large")) << name;
  }
  limits = {};
  limits.frames = 2;
  EXPECT_EQ(decode_image(read_file(data_dir() / "animated.webp"), limits).error().message,
            "the picture has more frames than the limit");
  limits = {};
  limits.scans = 2;
  EXPECT_EQ(decode_image(read_file(data_dir() / "progressive_444.jpg"), limits).error().message,
            "the picture has more passes than the limit");
  EXPECT_TRUE(decode_image(read_file(data_dir() / "scene_444.jpg"), limits).ok());
}

// A run-length literal of odd length holds half a byte too much, and is padded to a word.
TEST(Decode, RunLengthNibblesOfOddLength) {
  auto file = read_file(data_dir() / "rle4.bmp");  // 6 x 3; the pixels start after 14 + 40 + 64 bytes
  file.resize(118);
  for (const int v : {0, 5, 0x12, 0x34, 0x50, 0, 1, 0x60, 0, 0, 6, 0x77, 0, 0, 6, 0x12, 0, 1}) {
    file.push_back(static_cast<uint8_t>(v));
  }
  const auto image = decode_image(file, {});
  ASSERT_TRUE(image.ok()) << image.error().message;
  const std::vector<uint8_t> pixels(image->data(), image->data() + image->size_bytes());
  EXPECT_EQ(pixels, (std::vector<uint8_t>{1, 2, 1, 2, 1, 2, 7, 7, 7, 7, 7, 7, 1, 2, 3, 4, 5, 6}));
}

TEST(Exif, OrientationIsFoundAndApplied) {
  // The eight files hold the same pixels; the table below is where the source's corners go.
  const auto plain = decode_image(read_file(data_dir() / "turn1.jpg"), {});
  ASSERT_TRUE(plain.ok());
  for (int turn = 1; turn <= 8; ++turn) {
    const auto file = read_file(data_dir() / ("turn" + std::to_string(turn) + ".jpg"));
    EXPECT_EQ(exif_orientation(file.data(), file.size()), turn);
    auto image = decode_image(file, {});
    ASSERT_TRUE(image.ok());
    EXPECT_EQ(image->width(), 24) << "not applied by decoding";
    auto upright = convert_rgb(std::move(*apply_orientation(std::move(*image), turn)));
    const auto rows = read_table(data_dir() / "cases.tsv", "upright");
    ASSERT_EQ(rows.size(), 8u);
    EXPECT_EQ(rows[turn - 1][2], std::to_string(upright->width()));
    EXPECT_EQ(sha256_hex(upright->data(), upright->size_bytes()), rows[turn - 1][4]) << turn;
  }
  for (const char* name : {"scene.png", "lossy.webp", "plain.gif", "rgb24.bmp"}) {
    const auto file = read_file(data_dir() / name);
    EXPECT_EQ(exif_orientation(file.data(), file.size()), 1);
  }
  for (size_t size = 0; size < 200; ++size) {
    auto file = read_file(data_dir() / "turn6.jpg");
    file.resize(size);
    const int found = exif_orientation(file.data(), file.size());
    EXPECT_TRUE(found == 1 || found == 6) << size;
  }
}

TEST(Fingerprint, TellsPicturesApart) {
  const HashKey key{1, 2};
  const auto of = [&](const char* name, bool rgb = false) {
    auto image = decode_image(read_file(data_dir() / name), {});
    if (rgb) image = convert_rgb(std::move(*image));
    return fingerprint(*image, key);
  };
  EXPECT_EQ(of("turn1.jpg"), of("turn6.jpg")) << "equal pixels in different files";
  EXPECT_EQ(of("turn1.jpg"), fingerprint(*decode_image(read_file(data_dir() / "turn1.jpg"), {}), key));
  EXPECT_NE(of("palette8.png"), of("palette8.png", true)) << "the mode counts";
  EXPECT_NE(of("turn1.jpg"), fingerprint(*decode_image(read_file(data_dir() / "turn1.jpg"), {}), HashKey{1, 3}));
  // The same bytes as 30 x 100 and as 100 x 30; the same indices with another palette.
  auto tall = Image::make(Mode::kL, 30, 100), wide = Image::make(Mode::kL, 100, 30);
  std::fill_n(tall->data(), 3000, 7);
  std::fill_n(wide->data(), 3000, 7);
  EXPECT_NE(fingerprint(*tall, key), fingerprint(*wide, key));
  auto a = Image::make(Mode::kP, 2, 2), b = Image::make(Mode::kP, 2, 2);
  std::fill_n(a->data(), 4, 0);
  std::fill_n(b->data(), 4, 0);
  EXPECT_EQ(fingerprint(*a, key), fingerprint(*b, key));
  b->palette[0] = 1;
  EXPECT_NE(fingerprint(*a, key), fingerprint(*b, key));
}

TEST(Fingerprint, IsTheSameOnEveryIsaAndSeesEveryByte) {
  const HashKey key{3, 4};
  auto image = Image::make(Mode::kRGB, 13, 17);  // ten blocks of 64 bytes and a rest
  for (size_t i = 0; i < image->size_bytes(); ++i) image->data()[i] = static_cast<uint8_t>(i * 37);
  const Hash128 whole = fingerprint(*image, key, Isa::kScalar);
  for (const Isa isa : isas()) EXPECT_EQ(fingerprint(*image, key, isa), whole) << isa_name(isa);
  for (size_t i = 0; i < image->size_bytes(); ++i) {
    image->data()[i] ^= 1;
    EXPECT_NE(fingerprint(*image, key), whole) << i;
    image->data()[i] ^= 1;
  }
  std::memset(image->data() + image->size_bytes(), 7, kPixelTail);
  EXPECT_EQ(fingerprint(*image, key), whole) << "bytes behind the pixels do not count";
}

TEST(HashFile, IsTheSameOnEveryIsaAndSeesEveryByteAndTheLength) {
  const HashKey key{3, 4};
  std::vector<uint8_t> file(64 * 5 + 37);
  for (size_t i = 0; i < file.size(); ++i) file[i] = static_cast<uint8_t>(i * 37);
  const auto of = [&](size_t size, HashKey with = HashKey{3, 4}) {
    return hash_file({file.data(), size}, with, Isa::kScalar);
  };
  const Hash128 whole = of(file.size());
  for (const Isa isa : isas()) EXPECT_EQ(hash_file(file, key, isa), whole) << isa_name(isa);
  EXPECT_NE(of(file.size(), HashKey{3, 5}), whole);
  for (uint8_t& byte : file) {
    byte ^= 1;
    EXPECT_NE(of(file.size()), whole);
    byte ^= 1;
  }
  std::fill(file.begin(), file.end(), 0);
  for (size_t size = 1; size < file.size(); ++size) EXPECT_NE(of(size), of(size - 1)) << size;
  EXPECT_EQ(of(0), hash_file({}, key));
}

TEST(Sha256, KnownValues) {
  EXPECT_EQ(sha256_hex("abc", 3), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex(nullptr, 0), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST(Image, RefusesEmptyAndImpossibleSizes) {
  EXPECT_EQ(Image::make(Mode::kRGB, 0, 5).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(Image::make(Mode::kRGB, int64_t{1} << 40, 5).error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace tern::image
