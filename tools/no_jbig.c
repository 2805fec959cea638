/* Takes the place of libjbig (GPL-2+) beside the portable folder's libtiff, which names it for one compression of
   TIFF. The server refuses that compression before libtiff sees a file, so nothing here is ever called; all of it
   fails. Functions as libtiff declares them, by name alone. */
void jbg_dec_init(void* s) { (void)s; }
void jbg_dec_free(void* s) { (void)s; }
int jbg_dec_in(void* s, unsigned char* data, unsigned long size, unsigned long* used) {
  (void)s, (void)data, (void)size;
  if (used) *used = 0;
  return 0x40; /* an error: success is 0 */
}
unsigned long jbg_dec_getsize(const void* s) { (void)s; return 0; }
unsigned char* jbg_dec_getimage(const void* s, int plane) { (void)s, (void)plane; return 0; }
int jbg_newlen(unsigned char* data, unsigned long size) { (void)data, (void)size; return 0x40; }
const char* jbg_strerror(int code) { (void)code; return "this library has no JBIG"; }
void jbg_enc_init(void* s) { (void)s; }
void jbg_enc_out(void* s) { (void)s; }
void jbg_enc_free(void* s) { (void)s; }
