// What FastDeploy does to every picture before its conversion to RGB: transparent ones are laid on white, and all are
// turned as their Exif orientation says.
#pragma once

#include "base/error.h"
#include "image/codecs/decode.h"
#include "image/image.h"

namespace tern::image {

// Mode RGBA or LA with an alpha below 255 somewhere. A palette's transparent entries and a tRNS chunk do not count, as
// in FastDeploy, where laying such a picture on white fails and it stays as it is.
bool is_transparent(const Image& image);

// The picture on a white ground, in mode RGB: Pillow's paste with the picture as its own mask. kInvalidArgument for
// modes without alpha.
Expected<Image> lay_on_white(const Image& image);

// Both, with the outcome of the original's order (on white, then upright). A picture that was laid on white is not
// turned: it is a new one to Pillow, without the file's Exif data. TIFFs are turned by Pillow's decoder already.
// orientation: exif_orientation's; 1 leaves the picture as it lies.
Expected<Image> compose_upright(Image image, Format format, int orientation);

}  // namespace tern::image
