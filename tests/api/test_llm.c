/* The short way in: text of a model in three calls. */
#include "support/support.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <trireme/trireme.h>

#define KJV_FOLDER TRM_SOURCE_DIR "/configs/models/kjv-7m"

typedef struct collected {
    char text[4096];
    size_t size, stop_at;
} collected;

static bool collect(void *user, const char *text, size_t size)
{
    collected *c = user;
    assert_true(c->size + size < sizeof(c->text));
    memcpy(c->text + c->size, text, size);
    c->size += size;
    c->text[c->size] = '\0';
    return c->stop_at == 0 || c->size < c->stop_at;
}

static trm_llm *open_model(int64_t max_context)
{
    trm_llm *llm;
    trm_llm_options options = TRM_LLM_OPTIONS_INIT;
    options.backend = TRM_BACKEND_HOST;
    options.max_context = max_context;
    assert_ok(trm_llm_open(KJV_FOLDER, &options, &llm));
    return llm;
}

static void text_is_continued(void **state)
{
    (void)state;
    trm_llm *llm = open_model(0);
    trm_llm_params params = TRM_LLM_PARAMS_INIT;
    params.max_tokens = 7;
    for (int32_t turn = 0; turn < 2; turn++) { /* nothing of the last call is left */
        collected out = {.size = 0};
        assert_ok(trm_llm_generate(llm, "In the beginning God", &params, collect, &out));
        assert_string_equal(out.text, " created the heaven and the earth.\n");
    }
    trm_llm_close(llm);
}

static void the_callback_ends_it(void **state)
{
    (void)state;
    trm_llm *llm = open_model(64);
    collected out = {.stop_at = 3};
    assert_ok(trm_llm_generate(llm, "In the beginning God", NULL, collect, &out));
    assert_string_equal(out.text, " created");
    trm_llm_close(llm);
}

static void the_context_ends_it(void **state)
{
    (void)state;
    trm_llm *llm = open_model(16);
    collected out = {.size = 0};
    assert_ok(trm_llm_generate(llm, "In the beginning God", NULL, collect, &out));
    assert_true(out.size > 10);
    trm_llm_close(llm);
}

static void count_warnings(void *user, trm_log_level level, const char *message)
{
    *(int32_t *)user += level == TRM_LOG_WARNING && strstr(message, "max_context is 1000000") != NULL;
}

static void a_context_longer_than_the_models_is_cut(void **state)
{
    (void)state;
    int32_t n = 0;
    trm_log_set(count_warnings, &n, TRM_LOG_WARNING);
    trm_llm_close(open_model(1000000));
    trm_log_set(NULL, NULL, TRM_LOG_ERROR);
    assert_int_equal(n, 1);
}

static void messages_are_answered(void **state)
{
    (void)state;
    trm_llm *llm = open_model(64);
    trm_llm_params params = TRM_LLM_PARAMS_INIT;
    params.max_tokens = 5;
    collected out = {.size = 0};
    const trm_llm_message messages[] = {{"user", "In the beginning God created the heaven"}, {"assistant", NULL}};
    assert_ok(trm_llm_chat(llm, messages, 1, &params, collect, &out));
    assert_true(out.size > 0);
    assert_fails(trm_llm_chat(llm, messages, 2, NULL, NULL, NULL), TRM_ERROR_INVALID_ARGUMENT, "message 1");
    trm_llm_close(llm);
}

/* Makes a folder of the shipped model with another chat template. */
static void make_folder(const char *folder, const char *chat_template)
{
    static const char *const files[] = {"config.json",
                                        "generation_config.json",
                                        "model-00001-of-00002.safetensors",
                                        "model-00002-of-00002.safetensors",
                                        "model.safetensors.index.json",
                                        "tokenizer.json",
                                        "tokenizer_config.json"};
    char path[512], target[512];
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s", folder, files[i]);
        snprintf(target, sizeof(target), KJV_FOLDER "/%s", files[i]);
        assert_int_equal(symlink(target, path), 0);
    }
    snprintf(path, sizeof(path), "%s/chat_template.jinja", folder);
    test_write_file(path, chat_template, strlen(chat_template));
}

/* A model whose template knows channels, and which writes text without them: that is the answer. */
static void answers_of_channels_are_given(void **state)
{
    (void)state;
    const char *folder = test_temporary_folder();
    make_folder(folder, "<|begin_of_text|>{{ messages[0].content }}{# <|channel|>final<|message|> #}");
    trm_llm *llm;
    trm_llm_options options = TRM_LLM_OPTIONS_INIT;
    options.backend = TRM_BACKEND_HOST;
    assert_ok(trm_llm_open(folder, &options, &llm));
    trm_llm_params params = TRM_LLM_PARAMS_INIT;
    params.max_tokens = 7;
    const trm_llm_message message = {"user", "In the beginning God"};
    for (size_t stop_at = 0; stop_at < 2; stop_at++) {
        collected out = {.stop_at = stop_at};
        assert_ok(trm_llm_chat(llm, &message, 1, &params, collect, &out));
        assert_string_equal(out.text, stop_at == 0 ? " created the heaven and the earth.\n" : " created");
    }
    trm_llm_close(llm);
}

static void mistakes_are_refused(void **state)
{
    (void)state;
    trm_llm *llm = NULL;
    trm_llm_options options = TRM_LLM_OPTIONS_INIT;
    trm_llm_close(NULL);
    assert_fails(trm_llm_open(NULL, NULL, &llm), TRM_ERROR_INVALID_ARGUMENT, "NULL");
    options.backend = TRM_BACKEND_HOST;
    assert_fails(trm_llm_open("nowhere", &options, &llm), TRM_ERROR_IO, "nowhere");
    options.weight_budget = "much";
    assert_fails(trm_llm_open(KJV_FOLDER, &options, &llm), TRM_ERROR_INVALID_ARGUMENT, "much");
    assert_null(llm);
    assert_fails(trm_llm_generate(NULL, "", NULL, NULL, NULL), TRM_ERROR_INVALID_ARGUMENT, "NULL");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_continued),
        cmocka_unit_test(the_callback_ends_it),
        cmocka_unit_test(the_context_ends_it),
        cmocka_unit_test(a_context_longer_than_the_models_is_cut),
        cmocka_unit_test(messages_are_answered),
        cmocka_unit_test(mistakes_are_refused),
        cmocka_unit_test(answers_of_channels_are_given),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
