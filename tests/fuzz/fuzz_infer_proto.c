/* Any bytes as a ModelInferRequest: what is read of it lies inside it and has the dims of the network. A request that
 * is read is read again from what its fields say. */
#include <string.h>

#include "fuzz.h"
#include "launcher/serve/grpc/infer_proto.h"

static served_network *network;

static void make_network(void)
{
    static const trm_dtype types[] = {TRM_F32, TRM_I64, TRM_BOOL, TRM_F16, TRM_U8, TRM_I8, TRM_F64};
    static trm_context *contexts[1]; /* no instance runs */
    trm_network *made;
    FUZZ_REQUIRE(trm_network_create(&made) == TRM_OK);
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        const char name[2] = {(char)('a' + i), '\0'};
        trm_tensor *tensor;
        FUZZ_REQUIRE(trm_network_add_input(made, name, types[i], (trm_dims){2, {-1, 3}}, &tensor) == TRM_OK);
        if (i < 2) {
            FUZZ_REQUIRE(trm_network_mark_output(made, tensor) == TRM_OK);
        }
    }
    const served_options options = {
        .name = "n", .version = "1", .platform = "p", .network = made, .contexts = contexts};
    FUZZ_REQUIRE(served_create(&options, &network) == TRM_OK);
}

/* The writer's messages are read as what was written. */
static void check_writer(const infer_request *request)
{
    proto_writer w = {0};
    proto_field field;
    const size_t place = proto_begin(&w, 3);
    proto_put_packed(&w, 1, request->inputs[0].dims.d, (size_t)request->inputs[0].dims.n);
    proto_put_text(&w, 2, request->id);
    proto_end(&w, place);
    FUZZ_REQUIRE(w.status == TRM_OK);
    proto_view view = proto_view_of(w.bytes.data, w.bytes.size);
    FUZZ_REQUIRE(proto_next(&view, &field) == PROTO_FIELD && field.number == 3 && view.at == view.end);
    view = field.bytes;
    FUZZ_REQUIRE(proto_next(&view, &field) == PROTO_FIELD && field.number == 1);
    for (int32_t i = 0; i < 2; i++) {
        uint64_t value;
        FUZZ_REQUIRE(proto_number(&field, PROTO_VARINT, &value) == PROTO_FIELD);
        FUZZ_REQUIRE((int64_t)value == request->inputs[0].dims.d[i]);
    }
    trm_bytes_fini(&w.bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char name[201], version[24];
    api_error error = {.status = 0};
    if (network == NULL) {
        make_network();
    }
    char *message = malloc(size + (size == 0)); /* of its own size, so that reading past it is seen */
    FUZZ_REQUIRE(message != NULL);
    memcpy(message, data, size);
    const proto_view view = proto_view_of(message, size);
    if (infer_proto_model(view, name, sizeof(name), version, &error)) {
        infer_request *request = infer_proto_read(network, NULL, view, NULL, NULL, &error);
        FUZZ_REQUIRE(request != NULL || error.status >= 400);
        for (int32_t i = 0; request != NULL && i < served_input_count(network); i++) {
            const infer_input *input = &request->inputs[i];
            FUZZ_REQUIRE(input->given && input->dims.n == 2 && input->dims.d[1] == 3);
            FUZZ_REQUIRE(input->bytes ==
                         (size_t)input->dims.d[0] * 3 * trm_dtype_size(served_input(network, i)->dtype));
            volatile unsigned char last = input->bytes > 0 ? ((const unsigned char *)input->data)[input->bytes - 1] : 0;
            (void)last;
        }
        if (request != NULL) {
            check_writer(request);
        }
        infer_destroy(request);
    }
    free(message);
    return 0;
}
