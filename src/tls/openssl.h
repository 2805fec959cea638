// OpenSSL 3, loaded when the first certificate or https address of ours is looked at: linked, its two libraries would
// cost every start of the program some milliseconds.
#pragma once

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <memory>
#include <string>

#include "base/error.h"

namespace tern::tls {

// The functions this room calls; macros of the headers are their _ctrl functions.
#define TERN_OPENSSL_FUNCTIONS(F)     \
  F(OPENSSL_init_ssl)                 \
  F(OpenSSL_version_num)              \
  F(ERR_clear_error)                  \
  F(ERR_peek_error)                   \
  F(ERR_peek_last_error)              \
  F(ERR_reason_error_string)          \
  F(BIO_meth_new)                     \
  F(BIO_meth_set_read)                \
  F(BIO_meth_set_write)               \
  F(BIO_meth_set_ctrl)                \
  F(BIO_new)                          \
  F(BIO_new_mem_buf)                  \
  F(BIO_free)                         \
  F(BIO_set_data)                     \
  F(BIO_get_data)                     \
  F(BIO_set_init)                     \
  F(BIO_set_flags)                    \
  F(BIO_clear_flags)                  \
  F(PEM_read_bio_X509)                \
  F(PEM_read_bio_X509_AUX)            \
  F(PEM_read_bio_PrivateKey)          \
  F(X509_free)                        \
  F(X509_get0_notAfter)               \
  F(X509_get0_notBefore)              \
  F(X509_cmp_current_time)            \
  F(X509_STORE_add_cert)              \
  F(X509_verify_cert_error_string)    \
  F(ASN1_TIME_to_tm)                  \
  F(EVP_PKEY_free)                    \
  F(EVP_MD_CTX_new)                   \
  F(EVP_MD_CTX_free)                  \
  F(EVP_DigestInit_ex)                \
  F(EVP_DigestUpdate)                 \
  F(EVP_DigestFinal_ex)               \
  F(EVP_sha1)                         \
  F(EVP_sha256)                       \
  F(TLS_server_method)                \
  F(TLS_client_method)                \
  F(SSL_CTX_new)                      \
  F(SSL_CTX_free)                     \
  F(SSL_CTX_ctrl)                     \
  F(SSL_CTX_set_options)              \
  F(SSL_CTX_set_cipher_list)          \
  F(SSL_CTX_use_certificate)          \
  F(SSL_CTX_use_PrivateKey)           \
  F(SSL_CTX_check_private_key)        \
  F(SSL_CTX_get_cert_store)           \
  F(SSL_CTX_add_client_CA)            \
  F(SSL_CTX_set_verify)               \
  F(SSL_CTX_set_session_id_context)   \
  F(SSL_CTX_set_num_tickets)          \
  F(SSL_CTX_set_alpn_select_cb)       \
  F(SSL_CTX_load_verify_locations)    \
  F(SSL_CTX_set_default_verify_paths) \
  F(SSL_new)                          \
  F(SSL_free)                         \
  F(SSL_ctrl)                         \
  F(SSL_set_bio)                      \
  F(SSL_set_accept_state)             \
  F(SSL_set_connect_state)            \
  F(SSL_set1_host)                    \
  F(SSL_do_handshake)                 \
  F(SSL_read)                         \
  F(SSL_write)                        \
  F(SSL_shutdown)                     \
  F(SSL_get_error)                    \
  F(SSL_get_verify_result)

struct OpenSsl {
#define TERN_OPENSSL_MEMBER(name) decltype(&::name) name;
  TERN_OPENSSL_FUNCTIONS(TERN_OPENSSL_MEMBER)
#undef TERN_OPENSSL_MEMBER
};

// Loaded and initialised once, from any thread. Error: libssl.so.3 is not there or lacks a function.
Expected<const OpenSsl*> load_openssl();
// For what can only be reached once it is loaded.
const OpenSsl& openssl();

// Why the last call failed, in OpenSSL's words, for a line of a log; "" where it left no reason.
std::string last_reason();

template <auto Member>
struct Free {
  template <class T>
  void operator()(T* object) const {
    (openssl().*Member)(object);
  }
};
using BioHandle = std::unique_ptr<BIO, Free<&OpenSsl::BIO_free>>;
using CertificateHandle = std::unique_ptr<X509, Free<&OpenSsl::X509_free>>;
using KeyHandle = std::unique_ptr<EVP_PKEY, Free<&OpenSsl::EVP_PKEY_free>>;
using DigestHandle = std::unique_ptr<EVP_MD_CTX, Free<&OpenSsl::EVP_MD_CTX_free>>;
using ContextHandle = std::unique_ptr<SSL_CTX, Free<&OpenSsl::SSL_CTX_free>>;

}  // namespace tern::tls
