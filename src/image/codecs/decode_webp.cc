#include <webp/decode.h>
#include <webp/demux.h>

#include <cstring>
#include <memory>

#include "image/codecs/decoders.h"

namespace tern::image {
namespace {

struct DemuxerFree {
  void operator()(WebPDemuxer* d) const { WebPDemuxDelete(d); }
};
struct AnimationFree {
  void operator()(WebPAnimDecoder* d) const { WebPAnimDecoderDelete(d); }
};

Error error_of(VP8StatusCode status) {
  switch (status) {
    case VP8_STATUS_OUT_OF_MEMORY:
      return error_memory();
    case VP8_STATUS_NOT_ENOUGH_DATA:
      return error_truncated();
    case VP8_STATUS_UNSUPPORTED_FEATURE:
      return error_variant();
    default:
      return error_damaged();
  }
}

Expected<Image> decode_still(Bytes file, const WebPBitstreamFeatures& features) {
  TERN_ASSIGN_OR_RETURN(Image image,
                        Image::make(features.has_alpha ? Mode::kRGBA : Mode::kRGB, features.width, features.height));
  WebPDecoderConfig config;
  if (!WebPInitDecoderConfig(&config)) return error_variant();
  config.output.colorspace = features.has_alpha ? MODE_RGBA : MODE_RGB;
  config.output.is_external_memory = 1;
  config.output.u.RGBA.rgba = image.data();
  config.output.u.RGBA.stride = static_cast<int>(image.row_bytes());
  config.output.u.RGBA.size = image.size_bytes();
  const VP8StatusCode status = WebPDecode(file.data(), file.size(), &config);
  WebPFreeDecBuffer(&config.output);
  if (status != VP8_STATUS_OK) return error_of(status);
  return image;
}

// The first frame on an otherwise transparent canvas.
Expected<Image> decode_first_frame(Bytes file, const WebPBitstreamFeatures& features) {
  WebPAnimDecoderOptions options;
  if (!WebPAnimDecoderOptionsInit(&options)) return error_variant();
  options.color_mode = MODE_RGBA;
  const WebPData data{file.data(), file.size()};
  const std::unique_ptr<WebPAnimDecoder, AnimationFree> decoder(WebPAnimDecoderNew(&data, &options));
  WebPAnimInfo info;
  if (!decoder || !WebPAnimDecoderGetInfo(decoder.get(), &info)) return error_damaged();
  uint8_t* pixels = nullptr;
  int timestamp = 0;
  if (!WebPAnimDecoderGetNext(decoder.get(), &pixels, &timestamp)) return error_damaged();
  TERN_ASSIGN_OR_RETURN(
      Image image, Image::make(features.has_alpha ? Mode::kRGBA : Mode::kRGB, info.canvas_width, info.canvas_height));
  const size_t count = static_cast<size_t>(info.canvas_width) * info.canvas_height;
  if (features.has_alpha) {
    std::memcpy(image.data(), pixels, 4 * count);
  } else {
    for (size_t i = 0; i < count; ++i) std::memcpy(image.data() + 3 * i, pixels + 4 * i, 3);
  }
  return image;
}

}  // namespace

Expected<Image> decode_webp(Bytes file, const DecodeLimits& limits) {
  if (file.size() < 20) return error_truncated();
  WebPBitstreamFeatures features;
  const VP8StatusCode status = WebPGetFeatures(file.data(), file.size(), &features);
  if (status != VP8_STATUS_OK) return error_of(status);
  TERN_RETURN_IF_ERROR(check_size(features.width, features.height, limits));
  // The container is walked once as a whole: pictures whose parts disagree or are missing end here.
  const WebPData data{file.data(), file.size()};
  WebPDemuxState state = WEBP_DEMUX_PARSE_ERROR;
  const std::unique_ptr<WebPDemuxer, DemuxerFree> demuxer(WebPDemuxPartial(&data, &state));
  if (!demuxer || state == WEBP_DEMUX_PARSE_ERROR) return error_damaged();
  if (state != WEBP_DEMUX_DONE) return error_truncated();
  if (WebPDemuxGetI(demuxer.get(), WEBP_FF_FRAME_COUNT) > limits.frames) return error_frames();
  TERN_RETURN_IF_ERROR(check_size(WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_WIDTH),
                                  WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_HEIGHT), limits));
  return features.has_animation ? decode_first_frame(file, features) : decode_still(file, features);
}

}  // namespace tern::image
