/*
 * A program whose locale has a comma for a point: what the library reads and writes is as ever. The locale is made by
 * localedef, which needs no files for it; a system without that program has no such locales either.
 */
#include "support/support.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <trireme/trireme.h>

#include "base/json.h"

#define MODEL TRM_SOURCE_DIR "/configs/models/kjv-7m"

static char folder[] = "/tmp/trireme-locale-XXXXXX";

static int set_comma(void **state)
{
    char path[64], command[256];
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/source", folder);
    FILE *source = fopen(path, "w");
    assert_non_null(source);
    fputs("LC_NUMERIC\ndecimal_point \"<U002C>\"\nthousands_sep \"\"\ngrouping -1\nEND LC_NUMERIC\n", source);
    fclose(source);
    snprintf(command, sizeof(command), "I18NPATH=%s localedef -c -i %s %s/xx_XX >%s/log 2>&1", folder, path, folder,
             folder);
    if (system("command -v localedef >/dev/null") != 0) {
        print_message("no localedef: the locale is %s\n", setlocale(LC_ALL, NULL));
        return 0;
    }
    (void)!system(command); /* it warns of what is not in the source */
    assert_int_equal(setenv("LOCPATH", folder, 1), 0);
    assert_non_null(setlocale(LC_NUMERIC, "xx_XX"));
    assert_string_equal(localeconv()->decimal_point, ",");
    return 0;
}

static int remove_folder(void **state)
{
    char command[64];
    (void)state;
    setlocale(LC_ALL, "C");
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    return system(command);
}

static void templates_keep_points(void **state)
{
    static const char text[] = "{{ 1.5 }} {{ [0.1, x]|tojson }} {{ '2.5'|float }} {{ '%.2f'|format(0.25) }} {{ 1e-7 }}";
    trm_chat_template *chat;
    trm_chat_input input = TRM_CHAT_INPUT_INIT;
    char *found;
    size_t size;
    (void)state;
    input.messages = "[]";
    input.extra = "{\"x\": 3.25}";
    assert_ok(trm_chat_template_parse("t", text, strlen(text), &chat));
    assert_ok(trm_chat_template_render(chat, &input, &found, &size));
    assert_string_equal(found, "1.5 [0.1, 3.25] 2.5 0.25 1e-07");
    trm_free(found);
    trm_chat_template_close(chat);
}

static void grammars_keep_points(void **state)
{
    static const char schema[] = "{\"type\":\"number\",\"minimum\":0.25,\"maximum\":0.75}";
    const int32_t end = 1;
    trm_tokenizer *tokenizer;
    trm_grammar_vocab *vocab;
    trm_grammar *grammar;
    (void)state;
    assert_ok(trm_tokenizer_open(MODEL, &tokenizer));
    assert_ok(trm_grammar_vocab_create(tokenizer, &end, 1, 0, &vocab));
    assert_ok(trm_grammar_compile(vocab, TRM_GRAMMAR_JSON_SCHEMA, schema, strlen(schema), &grammar));
    for (const char *const *text = (const char *const[]){"0.5", "0.8", NULL}; *text != NULL; text++) {
        trm_grammar_state *state_of;
        trm_tokens tokens;
        bool accepted = true;
        assert_ok(trm_grammar_state_create(grammar, &state_of));
        assert_ok(trm_tokenizer_encode(tokenizer, *text, 3, false, &tokens));
        for (size_t i = 0; i < tokens.count && accepted; i++) {
            assert_ok(trm_grammar_state_accept(state_of, tokens.ids[i], &accepted));
        }
        assert_true(accepted == ((*text)[2] == '5'));
        trm_tokens_fini(&tokens);
        trm_grammar_state_destroy(state_of);
    }
    trm_grammar_destroy(grammar);
    trm_grammar_vocab_destroy(vocab);
    trm_tokenizer_close(tokenizer);
}

static void budgets_and_plans_keep_points(void **state)
{
    trm_weight_budget budget;
    trm_model *model;
    trm_plan *plan;
    trm_generator_options options = TRM_GENERATOR_OPTIONS_INIT;
    trm_build_options build = TRM_BUILD_OPTIONS_INIT;
    build.backend = TRM_BACKEND_HOST;
    int64_t cache_tokens;
    trm_json_document *document;
    (void)state;
    assert_ok(trm_weight_budget_parse("1.5K", &budget));
    assert_int_equal(budget.bytes, 1536);
    assert_ok(trm_weight_budget_parse("12.5%", &budget));
    assert_true(budget.percent == 12.5);
    assert_ok(trm_model_open(MODEL, &model));
    assert_ok(trm_generator_plan(model, &options, &build, &plan, &cache_tokens));
    char *json = trm_plan_to_json(plan);
    assert_ok(trm_json_parse("plan", json, strlen(json), &document));
    trm_json_close(document);
    trm_free(json);
    trm_plan_destroy(plan);
    trm_model_close(model);
}

static void networks_keep_points(void **state)
{
    const float half = 0.5f;
    trm_network *network;
    trm_tensor *tensor;
    (void)state;
    assert_ok(trm_network_create(&network));
    assert_ok(trm_network_add_constant(network, "half", TRM_F32, (trm_dims){1, {1}}, &half, &tensor));
    char *text = trm_network_to_text(network);
    assert_non_null(strstr(text, "0.5"));
    trm_free(text);
    trm_network_destroy(network);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(templates_keep_points), cmocka_unit_test(grammars_keep_points),
                                       cmocka_unit_test(budgets_and_plans_keep_points),
                                       cmocka_unit_test(networks_keep_points)};
    return cmocka_run_group_tests(tests, set_comma, remove_folder);
}
