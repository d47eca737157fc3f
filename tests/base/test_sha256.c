/* SHA-256 and HMAC against published examples. */
#include "base/sha256.h"
#include "support/support.h"

#include <stdio.h>
#include <string.h>

static void assert_digest(const uint8_t digest[TRM_SHA256_SIZE], const char *expected)
{
    char text[2 * TRM_SHA256_SIZE + 1];
    for (size_t i = 0; i < TRM_SHA256_SIZE; i++) {
        snprintf(text + 2 * i, 3, "%02x", digest[i]);
    }
    assert_string_equal(text, expected);
}

/* FIPS 180-4's examples, and a million times a. */
static void hashes(void **state)
{
    (void)state;
    static const char *const rows[][2] = {{"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
                                          {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
                                          {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
                                           "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"}};
    uint8_t digest[TRM_SHA256_SIZE];
    trm_sha256 hash;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        for (size_t cut = 0; cut <= strlen(rows[i][0]); cut++) {
            trm_sha256_begin(&hash);
            trm_sha256_add(&hash, rows[i][0], cut);
            trm_sha256_add(&hash, rows[i][0] + cut, strlen(rows[i][0]) - cut);
            trm_sha256_end(&hash, digest);
            assert_digest(digest, rows[i][1]);
        }
    }
    trm_sha256_begin(&hash);
    for (int i = 0; i < 1000000; i++) {
        trm_sha256_add(&hash, "a", 1);
    }
    trm_sha256_end(&hash, digest);
    assert_digest(digest, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

/* RFC 4231, cases 1, 2, 6 and 7. */
static void authenticates(void **state)
{
    (void)state;
    uint8_t long_key[131], short_key[20], digest[TRM_SHA256_SIZE];
    memset(long_key, 0xaa, sizeof(long_key));
    memset(short_key, 0x0b, sizeof(short_key));
    const struct {
        const void *key;
        size_t size;
        const char *message, *digest;
    } rows[] = {
        {short_key, 20, "Hi There", "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"},
        {"Jefe", 4, "what do ya want for nothing?", "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"},
        {long_key, 131, "Test Using Larger Than Block-Size Key - Hash Key First",
         "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"},
        {long_key, 131,
         "This is a test using a larger than block-size key and a larger than block-size data. The key needs to be "
         "hashed before being used by the HMAC algorithm.",
         "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2"}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const trm_hmac_part parts[] = {{rows[i].message, 3}, {rows[i].message + 3, strlen(rows[i].message) - 3}};
        trm_hmac_sha256(rows[i].key, rows[i].size, parts, 2, digest);
        assert_digest(digest, rows[i].digest);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(hashes), cmocka_unit_test(authenticates)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
