#include "tls/context.h"

#include <fmt/format.h>

#include <cstring>
#include <ctime>
#include <string_view>

#include "tls/openssl.h"

namespace tern::tls {
namespace {

// TLS 1.2: key exchange of one connection alone and ciphers that authenticate. TLS 1.3 has no others.
constexpr char kCiphers[] = "ECDHE+AESGCM:ECDHE+CHACHA20";
constexpr unsigned char kSessionContext[] = "tern";
// Certificates of a client's chain together, in bytes.
constexpr long kMostOfChain = 64 << 10;

Error wrong(const std::string& file, const std::string& why) {
  return make_error(ErrorCode::kInvalidArgument, fmt::format("{}: {}", file, why));
}

std::string because(std::string_view what) {
  const std::string reason = last_reason();
  return reason.empty() ? std::string(what) : fmt::format("{} ({})", what, reason);
}

BioHandle memory(const std::string& text) {
  return BioHandle(openssl().BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

// Asked for where a key is encrypted: there is nobody at a terminal.
int no_password(char*, int, int, void* asked) {
  *static_cast<bool*>(asked) = true;
  return -1;
}

Expected<ContextHandle> make(const SSL_METHOD* (*method)()) {
  const OpenSsl& ssl = openssl();
  ssl.ERR_clear_error();
  ContextHandle context(ssl.SSL_CTX_new(method()));
  if (context == nullptr) return make_error(ErrorCode::kInternal, because("OpenSSL makes no context"));
  SSL_CTX* const c = context.get();
  ssl.SSL_CTX_ctrl(c, SSL_CTRL_SET_MIN_PROTO_VERSION, TLS1_2_VERSION, nullptr);
  ssl.SSL_CTX_ctrl(c, SSL_CTRL_SET_MAX_PROTO_VERSION, 0, nullptr);
  // Buffers of quiet connections are given back. A write may have moved by the time it is tried again, and may be taken
  // in part. A record without data of the application ends a read, so that no other side can keep a thread in one.
  ssl.SSL_CTX_ctrl(c, SSL_CTRL_CLEAR_MODE, SSL_MODE_AUTO_RETRY, nullptr);
  ssl.SSL_CTX_ctrl(c, SSL_CTRL_MODE,
                   SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS,
                   nullptr);
  ssl.SSL_CTX_set_options(c, SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION);
  if (ssl.SSL_CTX_set_cipher_list(c, kCiphers) != 1) {
    return make_error(ErrorCode::kInternal, because("OpenSSL has no cipher for TLS 1.2"));
  }
  return context;
}

// "" unless the certificate is not valid now.
std::string dates_warning(const std::string& file, const X509* certificate) {
  const OpenSsl& ssl = openssl();
  const auto warn = [&](std::string_view what, const ASN1_TIME* time) {
    std::tm when{};
    char text[64] = "";
    if (ssl.ASN1_TIME_to_tm(time, &when) == 1) std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &when);
    return fmt::format("{}: the certificate {} {}: clients refuse it", file, what, text);
  };
  const ASN1_TIME* const after = ssl.X509_get0_notAfter(certificate);
  const ASN1_TIME* const before = ssl.X509_get0_notBefore(certificate);
  if (ssl.X509_cmp_current_time(after) < 0) return warn("has expired on", after);
  if (ssl.X509_cmp_current_time(before) > 0) return warn("is not valid before", before);
  return {};
}

Status take_certificate(SSL_CTX* context, const ServerPems& pems, std::string& warning) {
  const OpenSsl& ssl = openssl();
  ssl.ERR_clear_error();
  const BioHandle text = memory(pems.certificate);
  const CertificateHandle own(ssl.PEM_read_bio_X509_AUX(text.get(), nullptr, no_password, nullptr));
  if (own == nullptr) return wrong(pems.certificate_name, because("there is no certificate in it"));
  if (ssl.SSL_CTX_use_certificate(context, own.get()) != 1) {
    return wrong(pems.certificate_name, because("the certificate cannot be used"));
  }
  if (std::string line = dates_warning(pems.certificate_name, own.get()); !line.empty()) warning = std::move(line);
  while (true) {
    ssl.ERR_clear_error();
    const CertificateHandle next(ssl.PEM_read_bio_X509(text.get(), nullptr, no_password, nullptr));
    if (next == nullptr) break;
    // _ADD1: the context takes a reference of its own.
    if (ssl.SSL_CTX_ctrl(context, SSL_CTRL_CHAIN_CERT, 1, next.get()) != 1) {
      return wrong(pems.certificate_name, because("a certificate of the chain cannot be used"));
    }
  }
  if (ERR_GET_REASON(ssl.ERR_peek_last_error()) == PEM_R_NO_START_LINE) return {};
  return wrong(pems.certificate_name, because("a certificate of the chain cannot be read"));
}

Status take_key(SSL_CTX* context, const ServerPems& pems) {
  const OpenSsl& ssl = openssl();
  ssl.ERR_clear_error();
  bool encrypted = false;
  const BioHandle text = memory(pems.key);
  const KeyHandle key(ssl.PEM_read_bio_PrivateKey(text.get(), nullptr, no_password, &encrypted));
  if (encrypted) {
    return wrong(
        pems.key_name,
        "the key is encrypted, and nobody is asked for a password; `openssl pkey -in FILE -out PLAIN` decrypts "
        "it (keep PLAIN at mode 600)");
  }
  if (key == nullptr) return wrong(pems.key_name, because("there is no private key in it"));
  if (ssl.SSL_CTX_use_PrivateKey(context, key.get()) == 1 && ssl.SSL_CTX_check_private_key(context) == 1) return {};
  return wrong(pems.key_name,
               because(fmt::format("it is not the key of the certificate in {}", pems.certificate_name)));
}

Status take_client_authority(SSL_CTX* context, const ServerPems& pems) {
  const OpenSsl& ssl = openssl();
  const BioHandle text = memory(pems.client_ca);
  size_t count = 0;
  while (true) {
    ssl.ERR_clear_error();
    const CertificateHandle authority(ssl.PEM_read_bio_X509(text.get(), nullptr, no_password, nullptr));
    if (authority == nullptr) break;
    ++count;
    if (ssl.X509_STORE_add_cert(ssl.SSL_CTX_get_cert_store(context), authority.get()) != 1 ||
        ssl.SSL_CTX_add_client_CA(context, authority.get()) != 1) {
      return wrong(pems.client_ca_name, because("a certificate cannot be used"));
    }
  }
  const bool whole = ERR_GET_REASON(ssl.ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  if (count == 0) return wrong(pems.client_ca_name, "there is no certificate in it");
  return whole ? Status() : Status(wrong(pems.client_ca_name, because("a certificate cannot be read")));
}

// The protocols that a client offers, each behind its length; one of HTTP/1 is chosen, others end the handshake.
int choose_protocol(SSL*, const unsigned char** out, unsigned char* out_size, const unsigned char* in, unsigned size,
                    void*) {
  for (const std::string_view known : {"http/1.1", "http/1.0"}) {
    for (unsigned at = 0; at < size && at + 1 + in[at] <= size; at += 1 + in[at]) {
      if (std::string_view(reinterpret_cast<const char*>(in) + at + 1, in[at]) != known) continue;
      *out = in + at + 1;
      *out_size = in[at];
      return SSL_TLSEXT_ERR_OK;
    }
  }
  return SSL_TLSEXT_ERR_ALERT_FATAL;
}

}  // namespace

Context::~Context() { openssl().SSL_CTX_free(context_); }

Expected<std::shared_ptr<const Context>> Context::server(const ServerPems& pems, std::string& warning) {
  TERN_ASSIGN_OR_RETURN([[maybe_unused]] const OpenSsl* loaded, load_openssl());
  const OpenSsl& ssl = openssl();
  TERN_ASSIGN_OR_RETURN(ContextHandle context, make(ssl.TLS_server_method));
  SSL_CTX* const c = context.get();
  TERN_RETURN_IF_ERROR(take_certificate(c, pems, warning));
  TERN_RETURN_IF_ERROR(take_key(c, pems));
  ssl.SSL_CTX_set_options(c, SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_PRIORITIZE_CHACHA);
  ssl.SSL_CTX_ctrl(c, SSL_CTRL_SET_MAX_CERT_LIST, kMostOfChain, nullptr);
  // A client that comes again brings its ticket; nothing is kept here for it.
  ssl.SSL_CTX_ctrl(c, SSL_CTRL_SET_SESS_CACHE_MODE, SSL_SESS_CACHE_OFF, nullptr);
  ssl.SSL_CTX_set_session_id_context(c, kSessionContext, sizeof kSessionContext - 1);
  ssl.SSL_CTX_set_num_tickets(c, 1);
  ssl.SSL_CTX_set_alpn_select_cb(c, choose_protocol, nullptr);
  if (pems.clients != ClientCertificates::kNone) {
    TERN_RETURN_IF_ERROR(take_client_authority(c, pems));
    const int required = pems.clients == ClientCertificates::kRequired ? SSL_VERIFY_FAIL_IF_NO_PEER_CERT : 0;
    ssl.SSL_CTX_set_verify(c, SSL_VERIFY_PEER | required, nullptr);
  }
  return std::shared_ptr<const Context>(new Context(context.release(), pems));
}

Expected<std::shared_ptr<const Context>> Context::client(const std::string& ca_file) {
  TERN_ASSIGN_OR_RETURN([[maybe_unused]] const OpenSsl* loaded, load_openssl());
  const OpenSsl& ssl = openssl();
  TERN_ASSIGN_OR_RETURN(ContextHandle context, make(ssl.TLS_client_method));
  SSL_CTX* const c = context.get();
  const int trusted = ca_file.empty() ? ssl.SSL_CTX_set_default_verify_paths(c)
                                      : ssl.SSL_CTX_load_verify_locations(c, ca_file.c_str(), nullptr);
  if (trusted != 1) return wrong(ca_file, because("there are no certificates to trust in it"));
  ssl.SSL_CTX_set_verify(c, SSL_VERIFY_PEER, nullptr);
  return std::shared_ptr<const Context>(new Context(context.release(), {}));
}

}  // namespace tern::tls
