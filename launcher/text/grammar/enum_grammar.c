/* Grammars that match one of several texts. */
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "launcher/text/grammar/tree.h"

void trm_grammar_read_enum(trm_grammar_tree *tree, const char *text, size_t size)
{
    trm_json_document *document = NULL;
    trm_status status = trm_json_parse("choice", text, size, &document);
    if (status != TRM_OK) {
        tree->status = status == TRM_ERROR_INVALID_MODEL ? TRM_ERROR_INVALID_ARGUMENT : status;
        return;
    }
    const trm_json *root = trm_json_root(document);
    int32_t rule = trm_grammar_add_rule(tree, "root", 4);
    trm_grammar_node *list = trm_grammar_list(tree, TRM_GRAMMAR_ANY_OF);
    if (!trm_json_is_array(root) || trm_json_count(root) == 0) {
        trm_grammar_fail(tree, TRM_ERROR_INVALID_ARGUMENT, "a choice is a JSON array of at least one string");
    }
    for (const trm_json *item = trm_json_first(root); item != NULL && tree->status == TRM_OK;
         item = trm_json_next(item)) {
        const char *string = trm_json_string(item);
        if (string == NULL) {
            trm_grammar_fail(tree, TRM_ERROR_INVALID_ARGUMENT, "a choice has an element that is not a string");
        } else {
            trm_grammar_append(tree, list, trm_grammar_text(tree, string, strlen(string)));
        }
    }
    trm_json_close(document);
    if (tree->status == TRM_OK) {
        tree->rules[rule].node = list;
        tree->root = rule;
    }
}
