#include "fetch/url.h"

#include <algorithm>

namespace tern::fetch {
namespace {

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

std::string lowered(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), lower);
  return out;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return lower(c) >= 'a' && lower(c) <= 'z'; }

Error bad_url() { return make_error(ErrorCode::kInvalidArgument, "The URL is malformed.", "url"); }

// Host and port as they are written between "//" and the path.
struct Authority {
  std::string_view host, port;
  bool bracketed = false;
};

std::optional<Authority> split_authority(std::string_view text) {
  Authority out;
  if (!text.empty() && text.front() == '[') {
    const size_t end = text.find(']');
    if (end == std::string_view::npos) return std::nullopt;
    out.host = text.substr(1, end - 1);
    out.bracketed = true;
    text.remove_prefix(end + 1);
    if (text.empty()) return out;
    if (text.front() != ':') return std::nullopt;
    out.port = text.substr(1);
  } else {
    const size_t colon = text.find(':');
    out.host = text.substr(0, colon);
    if (colon != std::string_view::npos) out.port = text.substr(colon + 1);
  }
  if (!std::all_of(out.port.begin(), out.port.end(), is_digit) || out.port.size() > 5) return std::nullopt;
  return out;
}

// Labels of letters, digits, '-' and '_'. A last label that is a number would make the name an address in another
// spelling (127.1, 0x7f.0.0.1, 2130706433), which only parse_address may read.
bool good_name(std::string_view host) {
  if (!host.empty() && host.back() == '.') host.remove_suffix(1);
  if (host.empty() || host.size() > 253) return false;
  std::string_view last;
  while (true) {
    const size_t dot = host.find('.');
    last = host.substr(0, dot);
    if (last.empty() || last.size() > 63) return false;
    for (const char c : last) {
      if (!is_digit(c) && !is_letter(c) && c != '-' && c != '_') return false;
    }
    if (dot == std::string_view::npos) break;
    host.remove_prefix(dot + 1);
  }
  if (last.size() >= 2 && last[0] == '0' && lower(last[1]) == 'x') return false;
  return !std::all_of(last.begin(), last.end(), is_digit);
}

// Spaces and letters outside ASCII are common in the paths of real links; everything else stays as it is.
std::string encode_path(std::string_view text) {
  static constexpr char kHex[] = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const auto b = static_cast<unsigned char>(c);
    if (b == ' ' || b >= 0x80 || c == '\\') {
      out += {'%', kHex[b >> 4], kHex[b & 15]};
    } else {
      out += c;
    }
  }
  return out;
}

bool names(std::string_view entry, const std::string& host, const std::string& port, bool usual_port) {
  const std::string wanted = lowered(entry);
  std::string_view name = wanted;
  bool port_ok = usual_port;
  const size_t colon = wanted.rfind(':');
  const bool bracketed = !wanted.empty() && wanted.front() == '[';
  const bool bare_v6 = !bracketed && std::count(wanted.begin(), wanted.end(), ':') > 1;
  if (!bare_v6 && colon != std::string::npos && (!bracketed || colon == wanted.find(']') + 1)) {
    port_ok = name.substr(colon + 1) == port;
    name = name.substr(0, colon);
  }
  if (bracketed && name.size() >= 2) name = name.substr(1, name.size() - 2);
  if (!port_ok || name.empty()) return false;
  if (name == host) return true;
  return name.front() == '.' && (host == name.substr(1) || host.ends_with(name));
}

std::optional<std::string> part(const CurlLibrary& curl, CURLU* handle, CURLUPart which, unsigned flags = 0) {
  char* text = nullptr;
  if (curl.url_get(handle, which, &text, flags) != CURLUE_OK) return std::nullopt;
  std::string out(text);
  curl.free(text);
  return out;
}

// Lets curl read the URL, and makes sure that it read the host that stands there.
Expected<Target> parse_with_curl(const std::string& url, const Authority& authority) {
  if (curl_library() == nullptr)
    return make_error(ErrorCode::kUnavailable, "URLs cannot be fetched: libcurl.so.4 is missing.");
  const CurlLibrary& curl = *curl_library();
  Target target;
  target.handle.reset(curl.url());
  if (!target.handle) return make_error(ErrorCode::kResourceExhausted, "Out of memory.");
  CURLU* handle = target.handle.get();
  if (curl.url_set(handle, CURLUPART_URL, url.c_str(), CURLU_DISALLOW_USER) != CURLUE_OK) return bad_url();
  auto host = part(curl, handle, CURLUPART_HOST);
  const auto port = part(curl, handle, CURLUPART_PORT, CURLU_DEFAULT_PORT);
  if (!host || !port || port->size() > 5 || part(curl, handle, CURLUPART_ZONEID)) return bad_url();
  if (authority.bracketed && host->size() > 2) *host = host->substr(1, host->size() - 2);
  target.literal = parse_address(*host);
  const bool same = authority.bracketed ? target.literal && parse_address(authority.host) == target.literal
                                        : lowered(*host) == lowered(authority.host);
  if (!same) return bad_url();
  target.host = lowered(*host);
  target.port = std::stoi(*port);
  if (target.port < 1 || target.port > 65535) return bad_url();
  if (target.host.back() == '.') {
    target.host.pop_back();
    if (curl.url_set(handle, CURLUPART_HOST, target.host.c_str(), 0) != CURLUE_OK) return bad_url();
  }
  return target;
}

}  // namespace

Error refused_host() {
  return make_error(ErrorCode::kInvalidArgument,
                    "The URL's host was not found, or is not one that media may be fetched from.", "url");
}

std::string url_scheme(std::string_view url) {
  const size_t colon = url.find(':');
  if (colon == 0 || colon == std::string_view::npos || colon > 16) return {};
  return std::all_of(url.begin(), url.begin() + colon, is_letter) ? lowered(url.substr(0, colon)) : std::string();
}

Expected<Target> check_url(std::string_view url, const FetchPolicy& policy) {
  if (url.size() > kMaxUrlBytes) return make_error(ErrorCode::kTooLarge, "The URL is too long.", "url");
  const std::string scheme = url_scheme(url);
  if (scheme != "https" && !(scheme == "http" && policy.allow_http)) {
    return make_error(ErrorCode::kInvalidArgument, "The URL's scheme is not supported.", "url");
  }
  for (const char c : url) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) return bad_url();
  }
  std::string_view rest = url.substr(scheme.size() + 1);
  if (!rest.starts_with("//")) return bad_url();
  rest.remove_prefix(2);
  const size_t end = std::min(rest.find_first_of("/?#"), rest.size());
  const auto authority = split_authority(rest.substr(0, end));
  if (!authority) return bad_url();
  const bool v4 = !authority->bracketed && parse_address(authority->host).has_value();
  if (authority->bracketed ? !parse_address(authority->host) : !v4 && !good_name(authority->host)) return bad_url();

  const std::string text = scheme + "://" + std::string(rest.substr(0, end)) + encode_path(rest.substr(end));
  TERN_ASSIGN_OR_RETURN(auto target, parse_with_curl(text, *authority));
  const auto& ports = policy.ports;
  const bool usual_port = std::find(ports.begin(), ports.end(), target.port) != ports.end();
  for (const std::string& entry : policy.allowed_domains) {
    if (names(entry, target.host, std::to_string(target.port), usual_port)) target.listed = true;
  }
  if (!policy.allowed_domains.empty() && !target.listed) return refused_host();
  if (!target.listed && !usual_port && !policy.allow_private) return refused_host();
  if (target.literal && !check_address(target, *target.literal, policy, is_public)) return refused_host();
  return target;
}

}  // namespace tern::fetch
