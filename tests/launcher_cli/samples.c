/* samples FOLDER: files 0.npy to 3.npy, f32 [1, 3, 64, 64], for the detector among the goldens of ONNX. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "kernels/sampling/random.h"

enum { FILES = 4, COUNT = 3 * 64 * 64 };

int main(int argc, char **argv)
{
    static float numbers[COUNT];
    char path[4096], header[119];
    if (argc != 2 || (mkdir(argv[1], 0777) != 0 && errno != EEXIST)) {
        return 2;
    }
    snprintf(header, sizeof(header), "%-117s\n", "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 3, 64, 64), }");
    for (int i = 0; i < FILES; i++) {
        snprintf(path, sizeof(path), "%s/%d.npy", argv[1], i);
        FILE *file = fopen(path, "wb");
        if (file == NULL) {
            return 1;
        }
        for (int k = 0; k < COUNT; k++) {
            numbers[k] = trm_random_unit((uint64_t)i + 1, (uint64_t)k);
        }
        fwrite("\x93NUMPY\x01\x00\x76\x00", 1, 10, file);
        fwrite(header, 1, 118, file);
        fwrite(numbers, sizeof(float), COUNT, file);
        if (fclose(file) != 0) {
            return 1;
        }
    }
    return 0;
}
