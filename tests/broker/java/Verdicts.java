import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.broker.filter.MessageEvaluationContext;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.Expression;

/**
 * What RocketMQ's SQL92 filter says of messages. Lines of words, texts in Base64:
 *
 * message NAME VALUE NAME VALUE ...   one more message with these properties; no answer
 * ask EXPRESSION                      answers "refused", or a letter for each message:
 *                                     T true, F false, N null, E an exception
 */
final class Verdicts {
    private Verdicts() {
    }

    public static void main(String[] arguments) throws Exception {
        List<Map<String, String>> messages = new ArrayList<>();
        StringBuilder out = new StringBuilder();
        BufferedReader in = new BufferedReader(
            new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ", -1);
            if (words[0].equals("message")) {
                Map<String, String> properties = new HashMap<>();
                for (int i = 1; i + 1 < words.length; i += 2) {
                    properties.put(text(words[i]), text(words[i + 1]));
                }
                messages.add(properties);
            } else {
                out.append(verdicts(text(words.length > 1 ? words[1] : ""), messages)).append('\n');
            }
        }
        System.out.print(out);
    }

    private static String text(String word) {
        return new String(Base64.getDecoder().decode(word), StandardCharsets.UTF_8);
    }

    private static String verdicts(String text, List<Map<String, String>> messages) {
        Expression expression;
        try {
            expression = FilterFactory.INSTANCE.get("SQL92").compile(text);
        } catch (Throwable e) {
            return "refused";
        }
        StringBuilder found = new StringBuilder();
        for (Map<String, String> properties : messages) {
            found.append(verdict(expression, properties));
        }
        return found.toString();
    }

    private static char verdict(Expression expression, Map<String, String> properties) {
        Object found;
        try {
            found = expression.evaluate(new MessageEvaluationContext(properties));
        } catch (Throwable e) {
            return 'E';
        }
        if (found == null) {
            return 'N';
        }
        return Boolean.TRUE.equals(found) ? 'T' : 'F';
    }
}
