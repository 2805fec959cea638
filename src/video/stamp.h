// The time of a frame, written on it as the original does with Pillow.
#pragma once

#include <memory>
#include <string>

#include "base/error.h"
#include "image/image.h"

namespace tern::video {

// "time: 01:02:03.45" (models-ernie-paddleocr.md 5.7).
std::string time_text(double seconds);

class Stamper {
 public:
  // Errors: kNotFound (the font cannot be opened), kUnsupported (it does not scale), kResourceExhausted.
  static Expected<Stamper> open(const std::string& font_file);
  Stamper(Stamper&&) noexcept;
  Stamper& operator=(Stamper&&) noexcept;
  ~Stamper();

  // Draws `text` at (0, 0): black, white stroke of trunc(size / 10), size trunc(0.1 * min(width, height)) pixels. What
  // does not fit is cut; a size below 1 draws nothing. The picture must be RGB. Equal to Pillow 12.3 with
  // ImageDraw.text and basic layout (RULES.md says how far).
  Status stamp(image::Image& image, const std::string& text);

 private:
  struct Font;
  explicit Stamper(std::unique_ptr<Font> font);
  std::unique_ptr<Font> font_;
};

}  // namespace tern::video
