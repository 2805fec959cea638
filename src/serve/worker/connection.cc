#include "serve/worker/connections.h"

namespace tern::serve {
namespace {
constexpr size_t kChunkHead = 10;  // eight hexadecimal digits and CRLF
}

void Connection::drop_input(size_t n) {
  in_begin += n;
  if (in_begin == in.size()) {
    in.clear();
    in_begin = 0;
  } else if (in_begin > (64u << 10)) {
    in.erase(0, in_begin);
    in_begin = 0;
  }
}

void Connection::trim(size_t keep) {
  if (in.empty() && in.capacity() > keep) std::string().swap(in);
  if (out.empty() && out.capacity() > keep) std::string().swap(out);
  parser.trim_body(keep);
}

std::string& Connection::stream_out() {
  if (minor_version == 1 && chunk_at == npos) {
    chunk_at = out.size();
    out.append(kChunkHead, '0');
  }
  return out;
}

void Connection::close_chunk() {
  if (chunk_at == npos) return;
  size_t size = out.size() - chunk_at - kChunkHead;
  if (size == 0) {
    out.resize(chunk_at);
  } else {
    for (size_t i = 8; i-- > 0; size >>= 4) out[chunk_at + i] = "0123456789abcdef"[size & 15];
    out[chunk_at + 8] = '\r';
    out[chunk_at + 9] = '\n';
    out += "\r\n";
  }
  chunk_at = npos;
}

void Connection::close_stream() {
  close_chunk();
  if (minor_version == 1) out += "0\r\n\r\n";
  streaming = false;
}

bool Connection::congested() const { return home->congested(*this); }
void Connection::begin_stream() { home->user().begin_stream(*this); }
void Connection::touch() { home->touch(*this); }
void Connection::drop() { home->drop(*this); }

void Connection::end_stream() {
  close_stream();
  home->user().finish_stream(*this);
  home->process(*this);
}

void Connection::respond(http::Response response) {
  home->user().respond(*this, std::move(response));
  home->process(*this);  // the next request may already be here
}

}  // namespace tern::serve
