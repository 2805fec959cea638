#include "app/access/tls_files.h"

#include <fmt/format.h>

#include "app/access/secret_file.h"

namespace tern::app {
namespace {

Error wrong(const char* flag, std::string message) {
  return make_error(ErrorCode::kInvalidArgument, std::move(message), flag);
}

}  // namespace

Expected<TlsFiles> TlsFiles::from(const FlagSet& flags) {
  TlsFiles files{.certificate = flags.text("ssl-certfile"),
                 .key = flags.text("ssl-keyfile"),
                 .client_ca = flags.text("ssl-ca-certs")};
  const std::string asked = flags.text("ssl-cert-reqs");
  if (asked == "1") files.clients = tls::ClientCertificates::kOptional;
  if (asked == "2") files.clients = tls::ClientCertificates::kRequired;
  const bool clients = files.clients != tls::ClientCertificates::kNone;
  if (!files.wanted()) {
    for (const char* flag : {"ssl-keyfile", "ssl-ca-certs", "ssl-cert-reqs"}) {
      if (flags.given(flag) && flags.text(flag) != "0") {
        return wrong(flag, fmt::format("--{} says nothing without --ssl-certfile: no port would speak TLS", flag));
      }
    }
    return files;
  }
  if (clients && files.client_ca.empty()) {
    return wrong("ssl-cert-reqs",
                 fmt::format("--ssl-cert-reqs {} needs --ssl-ca-certs: who signs the certificates of clients", asked));
  }
  if (!clients && !files.client_ca.empty()) {
    return wrong("ssl-ca-certs",
                 "--ssl-ca-certs says nothing without --ssl-cert-reqs 1 or 2: no client would be asked for a "
                 "certificate");
  }
  return files;
}

Expected<tls::ServerPems> TlsFiles::read(std::vector<std::string>& warnings) const {
  tls::ServerPems pems{.clients = clients};
  TERN_ASSIGN_OR_RETURN(SecretFile chain, read_secret_file(certificate, "ssl-certfile"));
  const char* const key_flag = key.empty() ? "ssl-certfile" : "ssl-keyfile";
  const std::string& key_path = key.empty() ? certificate : key;
  TERN_ASSIGN_OR_RETURN(SecretFile secret, read_secret_file(key_path, key_flag));
  if (secret.open_to_others()) warnings.push_back(open_file_warning(key_path, key_flag, secret.mode));
  pems.certificate_name = fmt::format("--ssl-certfile {}", certificate);
  pems.certificate = std::move(chain.text);
  pems.key_name = fmt::format("--{} {}", key_flag, key_path);
  pems.key = std::move(secret.text);
  if (clients == tls::ClientCertificates::kNone) return pems;
  TERN_ASSIGN_OR_RETURN(SecretFile authority, read_secret_file(client_ca, "ssl-ca-certs"));
  pems.client_ca_name = fmt::format("--ssl-ca-certs {}", client_ca);
  pems.client_ca = std::move(authority.text);
  return pems;
}

Expected<std::shared_ptr<const tls::Context>> TlsFiles::load(std::vector<std::string>& warnings) const {
  TERN_ASSIGN_OR_RETURN(const tls::ServerPems pems, read(warnings));
  std::string warning;
  auto context = tls::Context::server(pems, warning);
  if (context.ok() && !warning.empty()) warnings.push_back(std::move(warning));
  return context;
}

}  // namespace tern::app
