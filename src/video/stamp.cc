#include "video/stamp.h"

#include <fmt/format.h>
#include <ft2build.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "base/check.h"
#include FT_FREETYPE_H
#include FT_GLYPH_H
#include FT_STROKER_H

namespace tern::video {
namespace {

// 26.6 fixed point to the nearest pixel, as Pillow rounds.
int64_t pixel(int64_t v) { return ((v + 32) & -64) >> 6; }

uint8_t over_255(uint32_t v) {
  v += 128;
  return static_cast<uint8_t>(((v >> 8) + v) >> 8);
}

struct Mask {
  int64_t width = 0, height = 0, left = 0, top = 0;  // left, top: where it goes on the picture
  std::vector<uint8_t> alpha;
};

// One letter at one size, as FreeType gives it; kept, because a video has hundreds of times and twelve letters.
struct Bitmap {
  int64_t width = 0, rows = 0, left = 0, top = 0;
  std::vector<uint8_t> alpha;
};
struct Drawn {
  FT_UInt glyph = 0;
  int64_t advance = 0;  // 26.6
  FT_BBox box{};        // pixels
  Bitmap plain, border;
};
struct Letter {
  const Drawn* drawn;
  int64_t advance;  // with kerning
};

struct Extent {
  int64_t x_min = 0, x_max = 0, y_min = 0, y_max = 0;
};

using GlyphPtr = std::unique_ptr<FT_GlyphRec_, decltype(&FT_Done_Glyph)>;
using StrokerPtr = std::unique_ptr<FT_StrokerRec_, decltype(&FT_Stroker_Done)>;

Error no_glyph() { return make_error(ErrorCode::kUnsupported, "The font has no outline for a letter of the time."); }

std::vector<Letter> lay_out(FT_Face face, const std::vector<const Drawn*>& text) {
  const bool kerning = FT_HAS_KERNING(face);
  std::vector<Letter> letters;
  for (const Drawn* drawn : text) {
    FT_Vector delta;
    if (kerning && !letters.empty() && drawn->glyph != 0 && letters.back().drawn->glyph != 0 &&
        FT_Get_Kerning(face, letters.back().drawn->glyph, drawn->glyph, FT_KERNING_DEFAULT, &delta) == 0) {
      letters.back().advance += pixel(delta.x);  // pixels to a number in 1/64: so does Pillow
    }
    letters.push_back({drawn, drawn->advance});
  }
  return letters;
}

// The box of all glyphs and of the line that the pen walks.
Extent measure(const std::vector<Letter>& letters) {
  Extent box;
  int64_t pen = 0;
  for (const Letter& letter : letters) {
    const FT_BBox& bounds = letter.drawn->box;
    const int64_t x = pixel(pen);
    pen += letter.advance;
    box.x_max = std::max({box.x_max, pixel(pen), bounds.xMax + x});
    box.x_min = std::min<int64_t>(box.x_min, bounds.xMin + x);
    box.y_max = std::max<int64_t>(box.y_max, bounds.yMax);
    box.y_min = std::min<int64_t>(box.y_min, bounds.yMin);
  }
  return box;
}

// Alpha of overlapping glyphs adds up as if each were painted over the ones before it.
void paint(const Bitmap& bitmap, int64_t left, int64_t top, Mask& mask) {
  for (int64_t row = 0; row < bitmap.rows; ++row) {
    const int64_t y = top + row;
    if (y < 0 || y >= mask.height) continue;
    const uint8_t* from = bitmap.alpha.data() + row * bitmap.width;
    uint8_t* to = mask.alpha.data() + y * mask.width;
    for (int64_t i = std::max<int64_t>(0, -left); i < bitmap.width && left + i < mask.width; ++i) {
      uint8_t& target = to[left + i];
      if (from[i] == 0) continue;
      const uint32_t sum = from[i] + uint32_t{over_255(uint32_t{target} * (255u - from[i]))};
      target = target > 0 ? static_cast<uint8_t>(std::min<uint32_t>(255, sum)) : from[i];
    }
  }
}

// `stroke` 0: the letters themselves; otherwise the letters with their border, which is that much wider.
Expected<Mask> render(FT_Face face, const std::vector<Letter>& letters, int stroke) {
  const Extent box = measure(letters);
  Mask mask;
  mask.width = box.x_max - box.x_min + 2 * stroke;
  mask.height = box.y_max - box.y_min + 2 * stroke;
  mask.left = box.x_min - stroke;
  mask.top = pixel(face->size->metrics.ascender) - box.y_max - stroke;
  if (mask.width < 1 || mask.height < 1 || mask.width > 1 << 16 || mask.height > 1 << 14) return no_glyph();
  mask.alpha.assign(static_cast<size_t>(mask.width * mask.height), 0);

  // Hinted bitmaps can reach one pixel further than the outlines' box.
  int64_t pen = 0, x_min = 0, y_max = 0;
  for (const Letter& letter : letters) {
    y_max = std::max(y_max, letter.drawn->plain.top);
    x_min = std::min(x_min, letter.drawn->plain.left + pixel(pen));
    pen += letter.advance;
  }
  pen = (stroke - x_min) * 64;
  const int64_t base = -y_max - stroke;
  for (const Letter& letter : letters) {
    const Bitmap& bitmap = stroke != 0 ? letter.drawn->border : letter.drawn->plain;
    paint(bitmap, pixel(pen) + bitmap.left, -(base + bitmap.top), mask);
    pen += letter.advance;
  }
  return mask;
}

bool copy_bitmap(const FT_Bitmap& from, int64_t left, int64_t top, Bitmap& to) {
  to.left = left;
  to.top = top;
  if (from.buffer == nullptr) return true;
  if (from.pixel_mode != FT_PIXEL_MODE_GRAY) return false;
  to.width = from.width;
  to.rows = from.rows;
  for (int64_t row = 0; row < to.rows; ++row) {
    const uint8_t* line = from.buffer + row * from.pitch;
    to.alpha.insert(to.alpha.end(), line, line + to.width);
  }
  return true;
}

bool draw_border(FT_Face face, FT_Stroker stroker, Bitmap& border) {
  FT_Glyph raw = nullptr;
  if (FT_Get_Glyph(face->glyph, &raw) != 0) return false;
  GlyphPtr glyph(raw, FT_Done_Glyph);
  if (FT_Glyph_StrokeBorder(&raw, stroker, 0, 0) != 0) return false;
  glyph.reset(raw);
  FT_Vector origin{0, 0};
  if (FT_Glyph_To_Bitmap(&raw, FT_RENDER_MODE_NORMAL, &origin, 0) != 0) return false;
  glyph.reset(raw);
  const auto* image = reinterpret_cast<FT_BitmapGlyph>(raw);
  return raw->format == FT_GLYPH_FORMAT_BITMAP && copy_bitmap(image->bitmap, image->left, image->top, border);
}

// `stroker` may be null: no border then.
bool draw_letter(FT_Face face, char c, FT_Stroker stroker, Drawn& out) {
  out.glyph = FT_Get_Char_Index(face, static_cast<FT_ULong>(c));
  if (FT_Load_Glyph(face, out.glyph, FT_LOAD_NO_BITMAP) != 0) return false;
  out.advance = face->glyph->metrics.horiAdvance;
  FT_Glyph raw = nullptr;
  if (FT_Get_Glyph(face->glyph, &raw) != 0) return false;
  const GlyphPtr glyph(raw, FT_Done_Glyph);
  FT_Glyph_Get_CBox(raw, FT_GLYPH_BBOX_PIXELS, &out.box);
  if (stroker != nullptr && !draw_border(face, stroker, out.border)) return false;
  if (FT_Render_Glyph(face->glyph, FT_RENDER_MODE_NORMAL) != 0) return false;
  return copy_bitmap(face->glyph->bitmap, face->glyph->bitmap_left, face->glyph->bitmap_top, out.plain);
}

void fill(image::Image& image, const Mask& mask, uint8_t ink) {
  for (int64_t y = std::max<int64_t>(0, -mask.top); y < mask.height && mask.top + y < image.height(); ++y) {
    uint8_t* row = image.row(static_cast<int>(mask.top + y));
    const uint8_t* alpha = mask.alpha.data() + y * mask.width;
    for (int64_t x = std::max<int64_t>(0, -mask.left); x < mask.width && mask.left + x < image.width(); ++x) {
      uint8_t* at = row + (mask.left + x) * 3;
      const uint32_t a = alpha[x];
      for (int k = 0; k < 3; ++k) at[k] = over_255(at[k] * (255u - a) + ink * a);
    }
  }
}

}  // namespace

struct Stamper::Font {
  FT_Library library = nullptr;
  FT_Face face = nullptr;
  int size = 0;                 // of `drawn`
  std::map<char, Drawn> drawn;  // letters seen at that size
  Status use_size(int wanted);
  Expected<const Drawn*> letter(char c, FT_Stroker stroker);
  ~Font() {
    if (face != nullptr) FT_Done_Face(face);
    if (library != nullptr) FT_Done_FreeType(library);
  }
};

Status Stamper::Font::use_size(int wanted) {
  if (size == wanted) return {};
  drawn.clear();
  size = 0;
  if (FT_Set_Char_Size(face, 0, wanted * 64, 0, 0) != 0) return no_glyph();
  size = wanted;
  return {};
}

Expected<const Drawn*> Stamper::Font::letter(char c, FT_Stroker stroker) {
  const auto [it, fresh] = drawn.try_emplace(c);
  if (fresh && !draw_letter(face, c, stroker, it->second)) {
    drawn.erase(it);
    return no_glyph();
  }
  return &it->second;
}

Stamper::Stamper(std::unique_ptr<Font> font) : font_(std::move(font)) {}
Stamper::Stamper(Stamper&&) noexcept = default;
Stamper& Stamper::operator=(Stamper&&) noexcept = default;
Stamper::~Stamper() = default;

std::string time_text(double seconds) {
  const double in_hour = std::fmod(seconds, 3600.0);
  return fmt::format("time: {:02d}:{:02d}:{:05.2f}", static_cast<int64_t>(seconds / 3600.0),
                     static_cast<int>(in_hour / 60.0), std::fmod(in_hour, 60.0));
}

Expected<Stamper> Stamper::open(const std::string& font_file) {
  auto font = std::make_unique<Font>();
  if (FT_Init_FreeType(&font->library) != 0)
    return make_error(ErrorCode::kResourceExhausted, "FreeType did not start.");
  if (FT_New_Face(font->library, font_file.c_str(), 0, &font->face) != 0) {
    return make_error(ErrorCode::kNotFound, "The font for video timestamps cannot be opened: " + font_file);
  }
  if (!FT_IS_SCALABLE(font->face))
    return make_error(ErrorCode::kUnsupported, "The font for video timestamps does not scale.");
  return Stamper(std::move(font));
}

Status Stamper::stamp(image::Image& image, const std::string& text) {
  TERN_CHECK(image.mode() == image::Mode::kRGB);
  const int size = static_cast<int>(0.1 * std::min(image.width(), image.height()));
  if (size < 1) return {};
  FT_Face face = font_->face;
  TERN_RETURN_IF_ERROR(font_->use_size(size));
  const int stroke = static_cast<int>(0.1 * size);
  FT_Stroker raw = nullptr;
  if (stroke > 0 && FT_Stroker_New(font_->library, &raw) != 0) {
    return make_error(ErrorCode::kResourceExhausted, "Out of memory.");
  }
  const StrokerPtr stroker(raw, FT_Stroker_Done);
  if (raw != nullptr) FT_Stroker_Set(raw, stroke * 64, FT_STROKER_LINECAP_ROUND, FT_STROKER_LINEJOIN_ROUND, 0);
  std::vector<const Drawn*> drawn;
  for (const char c : text) {
    TERN_ASSIGN_OR_RETURN(const Drawn* letter, font_->letter(c, raw));
    drawn.push_back(letter);
  }
  const auto letters = lay_out(face, drawn);
  if (stroke > 0) {
    TERN_ASSIGN_OR_RETURN(const Mask border, render(face, letters, stroke));
    fill(image, border, 255);
  }
  TERN_ASSIGN_OR_RETURN(const Mask plain, render(face, letters, 0));
  fill(image, plain, 0);
  return {};
}

}  // namespace tern::video
